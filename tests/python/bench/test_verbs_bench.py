# SPDX-License-Identifier: MIT
"""`mori bench io --path verbs`, and what it reads of perftest."""

from __future__ import annotations

import json

import pytest
from bench_command import bench

from mori._bench.io import choose
from mori._bench.raw import perftest

BANDWIDTH = """
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    128            97.81              96.04                0.011449
---------------------------------------------------------------------------------------
"""


def test_the_row_of_a_size_is_found() -> None:
    assert perftest.row_of(BANDWIDTH, "1048576", "no row")[3] == "96.04"
    with pytest.raises(RuntimeError, match="no row"):
        perftest.row_of(BANDWIDTH, "4096", "no row")


def test_the_device_is_the_session_s() -> None:
    assert perftest.device_of(["shm: another host", "verbs/rdma: mlx5_3:2, mlx5_4:1"]) == ("mlx5_3", 2)
    with pytest.raises(RuntimeError, match="names no RDMA device"):
        perftest.device_of(["shm: another host"])


def test_who_asks_for_no_path_gets_no_devices() -> None:
    assert {case.path for case in choose(None, None)} == {"shm", "tcp", None}
    assert {case.path for case in choose(None, "verbs")} == {"verbs", None}
    assert [case.name for case in choose("verbs-8B-latency", None)] == ["verbs-8B-latency"]


@pytest.mark.usefixtures("nic")
def test_transfers_over_devices_are_measured() -> None:
    names = "verbs-1024x4KiB,verbs-128x1MiB-read,verbs-8B-latency,status-poll"
    done = bench("io", "--json", "--quick", "--repeats", "1", "--path", "verbs", "--cases", names)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["case"], one["path"]) for one in told] == [(name, "verbs") for name in names.split(",")]
    for one in told[:3]:
        assert one["value"] > 0
        assert (one["raw"] is None) == ("to compare with" in done.stderr)


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORI_RDMA_DEVICES", "none_of_this_name")
    done = bench("io", "--quick", "--repeats", "1", "--cases", "verbs-8B-latency")
    assert done.returncode == 1
    assert "not on verbs" in done.stderr
    assert "rdma: " in done.stderr
