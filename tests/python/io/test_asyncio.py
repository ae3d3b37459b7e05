# SPDX-License-Identifier: MIT
"""Waiting without burning: await, and the engine's descriptor in an event loop."""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Iterator

import pytest

from mori.io import BackendType, IOEngine, IOEngineSession, StatusCode, TransferStatus
from support import BACKENDS, Region, finish, introduce, new_engine, pattern

SIZE = 1 << 20


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[IOEngine, IOEngineSession, Region, Region]]:
    backend: BackendType = request.param
    here, there = new_engine("here", backend), new_engine("there", backend)
    introduce(here, there)
    source, target = Region(here, pattern(SIZE)), Region(there, SIZE)
    session = here.create_session(source.desc, target.desc)
    assert session is not None
    yield here, session, source, target
    here.close()
    there.close()


def test_await_gives_the_code(pair: tuple[IOEngine, IOEngineSession, Region, Region]) -> None:
    _, session, source, target = pair

    async def move() -> list[StatusCode]:
        first = await session.write(0, 0, SIZE, 1)
        return [first, *await asyncio.gather(*(_code(session.write(0, 0, SIZE, uid)) for uid in range(2, 40)))]

    for _ in range(2):  # each run has a loop of its own
        assert asyncio.run(move()) == [StatusCode.SUCCESS] * 39
    assert bytes(source) == bytes(target)


async def _code(status: TransferStatus) -> StatusCode:
    return await status


def test_the_loop_runs_meanwhile(pair: tuple[IOEngine, IOEngineSession, Region, Region]) -> None:
    status = TransferStatus()
    status.SetCode(StatusCode.IN_PROGRESS)

    async def both() -> tuple[StatusCode, int]:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            for _ in range(5):
                await asyncio.sleep(0.005)
                beats += 1
            status.Update(StatusCode.ERR_RDMA_OP, "for the test")

        code, _ = await asyncio.gather(_code(status), beat())
        return code, beats

    assert asyncio.run(both()) == (StatusCode.ERR_RDMA_OP, 5)


def test_await_with_a_timeout(pair: tuple[IOEngine, IOEngineSession, Region, Region]) -> None:
    status = TransferStatus()
    status.SetCode(StatusCode.IN_PROGRESS)

    async def impatient() -> StatusCode:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_code(status), 0.02)
        assert status.InProgress()
        status.Update(StatusCode.SUCCESS, "")
        return await status

    assert asyncio.run(impatient()) == StatusCode.SUCCESS


def test_await_of_what_is_not_in_progress() -> None:
    assert asyncio.run(_code(TransferStatus())) == StatusCode.INIT


def test_no_descriptor_is_left(pair: tuple[IOEngine, IOEngineSession, Region, Region]) -> None:
    _, session, _, _ = pair

    async def move() -> None:
        assert await session.write(0, 0, SIZE, 1) == StatusCode.SUCCESS

    asyncio.run(move())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asyncio.run(move())
    assert len(os.listdir("/proc/self/fd")) <= before


def test_fileno_in_epoll(pair: tuple[IOEngine, IOEngineSession, Region, Region]) -> None:
    engine, session, _, _ = pair
    fd = engine.fileno()
    assert engine.fileno() == fd
    with select.epoll() as poll:
        poll.register(fd, select.EPOLLIN)
        for uid in range(50):
            status = session.write(0, 0, SIZE, uid)
            while status.InProgress():
                assert poll.poll(10), "a transfer ended and the descriptor is silent, or it never ended"
                os.read(fd, 8)
            assert finish(status) == StatusCode.SUCCESS


def test_a_waiter_uses_no_processor(pair: tuple[IOEngine, IOEngineSession, Region, Region]) -> None:
    status = TransferStatus()
    status.SetCode(StatusCode.IN_PROGRESS)

    async def idle() -> float:
        waiting = asyncio.ensure_future(_code(status))
        await asyncio.sleep(0.05)
        started = time.process_time()
        await asyncio.sleep(0.3)
        used = time.process_time() - started
        status.Update(StatusCode.SUCCESS, "")
        await waiting
        return used

    assert asyncio.run(idle()) < 0.15
