# SPDX-License-Identifier: MIT
"""Engines that go away: closed, dropped, or left alone at the end of the program."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from mori.io import BackendType, IOEngine, StatusCode
from support import Peer, Region, finish, introduce, new_engine, pattern, run_script, succeed


def test_statuses_outlive_their_engine(backend: BackendType) -> None:
    with new_engine("short", backend) as engine:
        region = Region(engine, 64)
        status = engine.write(region.desc, 0, region.desc, 32, 8, 0)
        succeed(status)
        failed = engine.write(region.desc, 0, region.desc, 60, 8, 1)
        finish(failed)
    del engine
    gc.collect()
    assert status.Succeeded()
    assert failed.Code() == StatusCode.ERR_INVALID_ARGS
    assert failed.Message()


def test_close_ends_what_is_in_flight(make_peer: Callable[..., Peer], backend: BackendType) -> None:
    peer = make_peer("there", backend)
    engine = new_engine("here", backend)
    peer.meet(engine)
    size = 64 << 20
    region = Region(engine, size)
    session = engine.create_session(region.desc, peer.register(size)[1])
    statuses = [session.write(0, 0, size, uid) for uid in range(16)]
    engine.close()
    codes = [finish(status, 5000) for status in statuses]
    assert all(code in (StatusCode.SUCCESS, StatusCode.ERR_BAD_STATE, StatusCode.ERR_RDMA_OP) for code in codes)
    assert codes == sorted(codes, key=lambda code: code != StatusCode.SUCCESS), "in order to the end"


def test_close_wakes_waiters(make_peer: Callable[..., Peer], backend: BackendType) -> None:
    peer = make_peer("there", backend)
    engine = new_engine("here", backend)
    peer.meet(engine)
    size = 64 << 20
    region = Region(engine, size)
    session = engine.create_session(region.desc, peer.register(size)[1])
    statuses = [session.write(0, 0, size, uid) for uid in range(16)]
    waiter = threading.Thread(target=statuses[-1].Wait)
    waiter.start()
    engine.close()
    waiter.join(10)
    assert not waiter.is_alive()


def test_dropped_engine_is_closed(backend: BackendType) -> None:
    engine = new_engine("dropped", backend)
    port = engine.get_engine_desc().port
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
    with new_engine("heir", backend, port=port) as heir:
        assert heir.get_engine_desc().port == port


def test_many_engines_one_after_another(backend: BackendType) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    counts = []
    for _ in range(12):
        with new_engine("a", backend) as left, new_engine("b", backend) as right:
            introduce(left, right)
            here, there = Region(left, pattern(64)), Region(right, 64)
            succeed(left.write(here.desc, 0, there.desc, 0, 64, 0))
            assert there.buffer == here.buffer
        counts.append(open_files())
    assert counts[-1] <= counts[2] + 3, f"descriptors leak: {counts}"


def test_same_key_again(make_engine: Callable[..., IOEngine]) -> None:
    first, second = make_engine("twin"), make_engine("twin")
    for engine in (first, second):
        region = Region(engine, pattern(64))
        succeed(engine.write(region.desc, 0, region.desc, 32, 32, 0))


def test_transfers_leave_nothing_behind(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(4096)), Region(right, 4096)
    session = left.create_session(here.desc, there.desc)
    offs, sizes = list(range(0, 4096, 64)), [64] * 64

    def resident() -> int:
        gc.collect()
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    def rounds(count: int) -> None:
        for _ in range(count):
            uid = session.allocate_transfer_uid()
            statuses = [session.write(0, 0, 8, uid), session.batch_write(offs, offs, sizes, uid)]
            assert left.wait_all(statuses, 10_000) == StatusCode.SUCCESS

    rounds(500)
    before = resident()
    rounds(4000)
    # The target may remember each notification in a few dozen bytes, not more.
    assert resident() - before < 12 << 20


def test_close_right_after_the_last_transfer(backend: BackendType) -> None:
    # Paths, the links of the peer and the events of both ends are torn down at once here.
    for _ in range(40):
        with new_engine("left", backend) as left, new_engine("right", backend) as right:
            introduce(left, right)
            here, there = Region(left, pattern(64)), Region(right, 64)
            succeed(left.write(here.desc, 0, there.desc, 0, 64, 0))
            succeed(left.write(here.desc, 0, here.desc, 32, 32, 1))


EXITS = {
    "with transfers in flight": "",
    "after del": "del engine, session, statuses",
    "by sys.exit": "sys.exit(0)",
    "with a daemon thread submitting": "threading.Thread(target=forever, daemon=True).start(); time.sleep(0.05)",
    "with a daemon thread waiting": "threading.Thread(target=statuses[-1].Wait, daemon=True).start(); time.sleep(0.02)",
    "with references kept by a module": "sys.keep = engine, session, statuses",
    "after close": "engine.close()",
}


@pytest.mark.parametrize("how", EXITS)
def test_interpreter_exit(backend: BackendType, how: str) -> None:
    script = f"""
import sys, threading, time
from support import Region, introduce, new_engine
from mori.io import BackendType
engine, other = (new_engine(key, BackendType.{backend.name}) for key in ("one", "two"))
introduce(engine, other)
size = 64 << 20
here, there = Region(engine, size), Region(other, size)
session = engine.create_session(here.desc, there.desc)
statuses = [session.batch_write([0], [0], [size], uid) for uid in range(8)]
def forever():
    while True:
        session.write(0, 0, 4096, 0)
print("leaving", flush=True)
{EXITS[how]}
"""
    begin = time.monotonic()
    # Log lines about the transfers that the end cut short may follow.
    assert run_script(script, timeout=45).startswith("leaving\n")
    assert time.monotonic() - begin < 40  # 2 to 5 s where the thread submits, 15 beside a virtual machine


def test_exit_with_a_peer_gone_silent() -> None:
    """A stopped (not dead) peer must not keep the program from ending."""
    script = """
import atexit, os, signal
from support import Peer, Region, new_engine

def main():
    peer = Peer("two")
    # Registered before the engine is made, so it runs after the engine was closed.
    atexit.register(os.kill, peer.process.pid, signal.SIGKILL)
    engine = new_engine("one")
    peer.meet(engine)
    size = 64 << 20
    here = Region(engine, size)
    session = engine.create_session(here.desc, peer.register(size)[1])
    peer.pause()
    globals()["kept"] = here, [session.write(0, 0, size, uid) for uid in range(4)], session, engine
    print("leaving", flush=True)

if __name__ == "__main__":
    main()
"""
    assert run_script(script, timeout=45).startswith("leaving\n")
