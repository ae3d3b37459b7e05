# SPDX-License-Identifier: MIT
"""Many threads on one engine."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mori.io import BackendType, IOEngine, StatusCode
from support import Peer, Region, pattern, succeed

THREADS = 8
BLOCK = 4096
BLOCKS = 64
PART = BLOCK * BLOCKS


def together(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run ``work(0..count-1)``, all starting at once; the first exception comes out."""
    gate = threading.Barrier(count, timeout=30)

    def run(index: int) -> None:
        gate.wait()
        work(index)

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(run, index) for index in range(count)]:
            future.result(timeout=60)


@pytest.mark.parametrize("is_write", [True, False], ids=["write", "read"])
def test_eight_submitters(
    make_engine: Callable[..., IOEngine], make_peer: Callable[..., Peer], backend: BackendType, is_write: bool
) -> None:
    engine, peer = make_engine("here", backend), make_peer("there", backend)
    peer.meet(engine)
    size = PART * THREADS
    local = Region(engine, pattern(size, 1) if is_write else size)
    index, remote = peer.register(pattern(size, 2))

    def work(thread: int) -> None:
        rng = random.Random(thread)
        offs = [thread * PART + n * BLOCK for n in range(BLOCKS)]
        batch = engine.batch_write if is_write else engine.batch_read
        for start in range(0, BLOCKS, 8):
            some = offs[start : start + 8]
            rng.shuffle(some)
            uid = engine.allocate_transfer_uid()
            statuses = batch([local.desc], [some], [remote], [some], [[BLOCK] * 8], [uid])
            while (code := engine.wait_all(statuses, timeout_ms=1000)) == StatusCode.IN_PROGRESS:
                pass
            assert code == StatusCode.SUCCESS, statuses[0].Message()

    together(work)
    assert bytes(local) == peer.content(index)


def test_sessions_made_and_used_by_all(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(PART)), Region(right, PART)
    share = PART // THREADS

    def work(thread: int) -> None:
        session = left.create_session(here.desc, there.desc)
        at = thread * share
        for n in range(20):
            succeed(session.write(at, at, share, session.allocate_transfer_uid()))
            if n % 5 == 4:
                session = left.create_session(here.desc, there.desc)

    together(work)
    assert there.buffer == here.buffer


def test_one_session_for_all(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(PART)), Region(right, PART)
    session = left.create_session(here.desc, there.desc)
    share = PART // THREADS

    def work(thread: int) -> None:
        offs = list(range(thread * share, (thread + 1) * share, 512))
        statuses = [session.batch_write([at], [at], [512], at) for at in offs]
        assert left.wait_all(statuses, 20_000) == StatusCode.SUCCESS

    together(work)
    assert there.buffer == here.buffer


def test_uids_are_unique(engine: IOEngine) -> None:
    taken: list[list[int]] = [[] for _ in range(THREADS)]
    together(lambda thread: taken[thread].extend(engine.allocate_transfer_uid() for _ in range(2000)))
    assert sorted(uid for one in taken for uid in one) == list(range(2000 * THREADS))
    assert all(one == sorted(one) for one in taken)


def test_registration_during_transfers(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(PART)), Region(right, PART)
    session = left.create_session(here.desc, there.desc)

    def work(thread: int) -> None:
        if thread % 2:
            for n in range(50):
                content = pattern(1024, thread * 100 + n)
                source, target = Region(left, content), Region(right, 1024)
                succeed(left.write(source.desc, 0, target.desc, 0, 1024, left.allocate_transfer_uid()))
                assert bytes(target) == content
                left.deregister_memory(source.desc)
                right.deregister_memory(target.desc)
        else:
            for n in range(100):
                at = (n * THREADS + thread) % BLOCKS * BLOCK
                succeed(session.write(at, at, BLOCK, session.allocate_transfer_uid()))

    together(work)


def test_peers_come_and_go_during_transfers(make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
    from support import introduce, new_engine

    hub, steady = make_engine("hub", backend), make_engine("steady", backend)
    introduce(hub, steady)
    here, there = Region(hub, pattern(PART)), Region(steady, PART)

    def work(thread: int) -> None:
        if thread == 0:
            for n in range(5):
                with new_engine(f"guest-{n}", backend) as guest:
                    introduce(hub, guest)
                    target = Region(guest, 64)
                    succeed(hub.write(here.desc, 0, target.desc, 0, 64, hub.allocate_transfer_uid()))
                    assert bytes(target) == bytes(here)[:64]
                    hub.deregister_remote_engine(guest.get_engine_desc())
        else:
            for n in range(60):
                at = (n * 4 + thread) % BLOCKS * BLOCK
                succeed(hub.write(here.desc, at, there.desc, at, BLOCK, hub.allocate_transfer_uid()))

    together(work, 4)


def test_waiters_do_not_hold_the_gil(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    size = 64 << 20
    here, there = Region(left, size), Region(right, size)
    session = left.create_session(here.desc, there.desc)
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        statuses = [session.write(0, 0, size, uid) for uid in range(4)]
        before = ticks
        assert left.wait_all(statuses, 30_000) == StatusCode.SUCCESS
        assert ticks > before
    finally:
        stop.set()
        ticker.join()
