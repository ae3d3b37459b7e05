# SPDX-License-Identifier: MIT
"""What a program sees of the log: settings that are wrong, and peers that die with much under way."""

from __future__ import annotations

from support import run_program

WRONG_SETTINGS = """
import os
from mori.io import IOEngine, IOEngineConfig
os.environ["MORI_IO_DEADLIN_MS"] = "5"  # after the import, as launchers of workers do
os.environ["MORI_IO_LEASE_MS"] = "soon"
for name in ("a", "b"):
    IOEngine(name, IOEngineConfig("127.0.0.1", 0)).close()
print("done")
"""

KILLED_PEER = """
import os, signal
from mori.io import BackendType, StatusCode
from support import Peer, Region, finish, new_engine

peer = Peer("there", BackendType.TCP)
here = new_engine("here", BackendType.TCP)
peer.meet(here)
region = Region(here, 1 << 20)
_, remote = peer.register(1 << 20)
assert finish(here.write(region.desc, 0, remote, 0, 4096, here.allocate_transfer_uid())) is StatusCode.SUCCESS
peer.pause()
statuses = [here.write(region.desc, 0, remote, 0, 4096, here.allocate_transfer_uid()) for _ in range(1000)]
peer.kill()
codes = {finish(status) for status in statuses}
assert StatusCode.ERR_RDMA_OP in codes, codes  # some may have been done before the peer stopped
print("done")
"""


def test_wrong_settings_are_told_once() -> None:
    done = run_program(WRONG_SETTINGS)
    assert done.stdout == "done\n"
    lines = [line for line in done.stderr.splitlines() if "environment variable ignored" in line]
    unknown = "mori has no variable MORI_IO_DEADLIN_MS: did you mean MORI_IO_DEADLINE_MS?"
    assert sum(unknown in line for line in lines) == 1
    assert any('MORI_IO_LEASE_MS="soon": want an integer from 0 to 86400000' in line for line in lines)


def test_settings_that_exist_are_not_told() -> None:
    done = run_program(WRONG_SETTINGS.replace("DEADLIN_", "DEADLINE_").replace("soon", "900"))
    assert done.stdout == "done\n"
    assert "environment variable" not in done.stderr


def test_a_peer_that_dies_with_a_thousand_transfers_is_few_lines() -> None:
    done = run_program(KILLED_PEER, MORI_IO_DEADLINE_MS="3000")
    assert done.stdout == "done\n"
    failed = [line for line in done.stderr.splitlines() if "transfer failed" in line]
    assert 1 <= len(failed) <= 20, "\n".join(failed[:30])
    assert "peer=there" in failed[0]
