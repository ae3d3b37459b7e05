# SPDX-License-Identifier: MIT
"""Cancelling transfers and their deadlines: nothing lands afterwards, and the other transfers go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from mori.io import (
    BackendType,
    ConnectionFailedError,
    IOEngine,
    IOEngineSession,
    MoriTimeoutError,
    StatusCode,
    TransferStatus,
)
from support import BACKENDS, Peer, Region, finish, new_engine, pattern, succeed

SIZE = 8 << 20


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> BackendType:
    return request.param


@pytest.fixture
def peer(backend: BackendType) -> Iterator[Peer]:
    peer = Peer("peer", backend)
    yield peer
    peer.resume()
    peer.stop()


@pytest.fixture
def engine(backend: BackendType) -> Iterator[IOEngine]:
    engine = new_engine("here", backend)
    yield engine
    engine.close()


@pytest.fixture
def pair(engine: IOEngine, peer: Peer) -> tuple[IOEngineSession, Region, int]:
    peer.meet(engine)
    index, remote = peer.register(SIZE)
    local = Region(engine, pattern(SIZE))
    session = engine.create_session(local.desc, remote)
    assert session is not None
    return session, local, index


def test_cancel_after_the_end_changes_nothing(pair: tuple[IOEngineSession, Region, int]) -> None:
    session, _, _ = pair
    status = session.write(0, 0, 4096, 1)
    succeed(status)
    status.Cancel()
    session.cancel(1)
    assert status.Succeeded()
    TransferStatus().Cancel()


def test_nothing_lands_after_cancel(pair: tuple[IOEngineSession, Region, int], peer: Peer) -> None:
    session, local, index = pair
    for round_, cancel in enumerate((lambda s: s.Cancel(), lambda s: session.cancel(7))):
        status = session.write(0, 0, SIZE, 7)
        cancel(status)
        before = peer.content(index)
        code = finish(status)
        time.sleep(0.05)
        assert peer.content(index) == before
        if code == StatusCode.SUCCESS:
            assert before == bytes(local), round_
        else:
            assert code == StatusCode.ERR_BAD_STATE
            assert "canceled" in status.Message()
            assert '"peer"' in status.Message()
    succeed(session.write(0, 0, SIZE, 8))
    assert peer.content(index) == bytes(local)


def test_cancel_of_a_transfer_with_a_stopped_peer(pair: tuple[IOEngineSession, Region, int], peer: Peer) -> None:
    session, local, _ = pair
    succeed(session.write(0, 0, 8, 1))
    peer.pause()
    status = session.read(0, 0, SIZE, 2)
    started = time.monotonic()
    status.Cancel(timeout_ms=20_000)  # a read lands here only, so the peer need not say anything
    local.buffer[:] = bytes(SIZE)
    finish(status)
    status = session.write(0, 0, SIZE, 3)
    if status.InProgress():  # with shared memory the copy needs no other process
        with pytest.raises((MoriTimeoutError, ConnectionFailedError)):
            status.Cancel(timeout_ms=300)
        assert finish(status) == StatusCode.ERR_BAD_STATE
    assert time.monotonic() - started < 60
    peer.resume()
    assert bytes(local) == bytes(SIZE)
    succeed(session.write(0, 0, SIZE, 4))


@pytest.mark.parametrize("of", ["session", "call"])
def test_deadline_of_session_and_call(pair: tuple[IOEngineSession, Region, int], peer: Peer, of: str) -> None:
    session, _, _ = pair
    succeed(session.with_deadline(0).write(0, 0, 8, 1))
    succeed(session.batch_write([0], [0], [8], 1, deadline_ms=5000))
    peer.pause()
    calls: list[Callable[[], TransferStatus]] = (
        [lambda: session.with_deadline(200).batch_write([0], [0], [SIZE], 2)]
        if of == "session"
        else [
            lambda: session.write(0, 0, SIZE, 3, deadline_ms=200),
            lambda: session.batch_read([0], [0], [SIZE], 4, deadline_ms=200),
        ]
    )
    for call in calls:
        status = call()
        if finish(status) != StatusCode.SUCCESS:  # with shared memory a stopped peer is no obstacle
            assert "deadline of 200 ms" in status.Message()
            assert f"of {SIZE} bytes done" in status.Message()


def test_deadline_of_calls_of_the_engine(engine: IOEngine, peer: Peer) -> None:
    peer.meet(engine)
    _, remote = peer.register(SIZE)
    local = Region(engine, pattern(SIZE))
    one, many = (local.desc, 0, remote, 0, SIZE), ([local.desc] * 2, [[0]] * 2, [remote] * 2, [[0]] * 2, [[SIZE]] * 2)
    succeed(engine.write(*one, 1, deadline_ms=0))
    peer.pause()
    late = [engine.write(*one, 2, deadline_ms=200), *engine.batch_read(*many, [3, 4], deadline_ms=200)]
    for status in late:
        if finish(status) != StatusCode.SUCCESS:  # with shared memory a stopped peer is no obstacle
            assert "deadline of 200 ms" in status.Message()
    peer.resume()
    succeed(engine.write(*one, 5))
    for bad in (-1, 2**31):
        with pytest.raises(ValueError, match="deadline_ms"):
            engine.read(*one, 6, deadline_ms=bad)
        with pytest.raises(ValueError, match="deadline_ms"):
            engine.batch_read(*many, [6, 7], deadline_ms=bad)


@pytest.mark.parametrize("bad", [-1, 2**31])
def test_impossible_deadlines(pair: tuple[IOEngineSession, Region, int], bad: int) -> None:
    session, _, _ = pair
    with pytest.raises(ValueError, match="deadline_ms"):
        session.with_deadline(bad)
    with pytest.raises(ValueError, match="deadline_ms"):
        session.write(0, 0, 8, 1, deadline_ms=bad)


def test_deadline_must_be_an_integer(pair: tuple[IOEngineSession, Region, int]) -> None:
    with pytest.raises(TypeError):
        pair[0].with_deadline(1.5)  # type: ignore[arg-type]
