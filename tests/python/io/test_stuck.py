# SPDX-License-Identifier: MIT
"""Memory whose page faults are not served (userfaultfd): the program continues, gets Ctrl-C, cancels and closes."""

from __future__ import annotations

import pytest

from mori.io import BackendType
from support import run_script

SCRIPT = """
import ctypes, os, signal, sys, threading, time
from mori.io import BackendType, StatusCode
from support import Peer, Region, new_engine, stick, succeed

SIZE = 1 << 20
kept = []  # to free memory that is stuck is to touch it

def transfer(kind, where, write, size):
    peer = Peer("there", kind)
    engine = new_engine("here", kind)
    peer.meet(engine)
    local = Region(engine, SIZE)
    kept.append(local)
    index, remote = peer.register(SIZE)
    session = engine.create_session(local.desc, remote)
    move = session.write if write else session.read
    succeed(move(0, 0, 8, 0))
    page = 8192 - local.desc.data % 4096 if where == "local" else 8192 - remote.data % 4096
    if where == "local":
        stick(local.desc)
    else:
        peer.call("stick", index)
    status = move(page, page, size, 1)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    try:
        status.Wait()
        raise AssertionError(f"the wait ended: {status.Code()} {status.Message()}")
    except KeyboardInterrupt:
        pass
    try:
        status.Cancel(timeout_ms=500)
    except Exception as err:
        print(type(err).__name__, err)
    assert status.Code() not in (StatusCode.IN_PROGRESS, StatusCode.SUCCESS), status.Code()
    canceled = time.monotonic()
    engine.close()
    print(kind.name, where, write, size, round(canceled - started, 2), round(time.monotonic() - canceled, 2))
    peer.kill()

if __name__ == "__main__":
    try:
        for write, size in ((True, 4096), (False, SIZE // 2)):
            transfer(BackendType[KIND], WHERE, write, size)
    except OSError as err:
        print("cannot", err)
    print("works", flush=True)
    os._exit(0)  # memory that is stuck is touched by nobody
"""


@pytest.mark.parametrize("kind", [BackendType.RDMA, BackendType.TCP])
@pytest.mark.parametrize("where", ["local", "remote"])
def test_a_program_with_stuck_memory_hears_ctrl_c(kind: BackendType, where: str) -> None:
    printed = run_script(f"KIND, WHERE = {kind.name!r}, {where!r}\n" + SCRIPT, timeout=60)
    if "cannot" in printed:
        pytest.skip(printed)
    assert "works" in printed
