# SPDX-License-Identifier: MIT
"""Sessions: single transfers, copies of descriptors, sharing of counters, lifetime."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from gpus import Memory
from mori.io import BackendType, IOEngine, IOEngineSession, MemoryDesc, StatusCode
from support import Region, eventually, finish, pattern, succeed

SIZE = 4096


@pytest.fixture
def pair(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> tuple[Region, Region, IOEngineSession]:
    left, right = two_engines
    here, there = Region(left, pattern(SIZE, 1), memory), Region(right, pattern(SIZE, 2), memory)
    return here, there, left.create_session(here.desc, there.desc)


def test_class_and_native(pair: tuple[Region, Region, IOEngineSession]) -> None:
    from mori import cpp

    session = pair[2]
    assert isinstance(session, IOEngineSession)
    assert isinstance(session._session, cpp.IOEngineSession)


def test_write(pair: tuple[Region, Region, IOEngineSession]) -> None:
    here, there, session = pair
    succeed(session.write(10, 20, 100, session.allocate_transfer_uid()))
    assert bytes(there)[20:120] == bytes(here)[10:110]
    assert bytes(there)[:20] + bytes(there)[120:] == pattern(SIZE, 2)[:20] + pattern(SIZE, 2)[120:]


def test_read(pair: tuple[Region, Region, IOEngineSession]) -> None:
    here, there, session = pair
    succeed(session.read(10, 20, 100, session.allocate_transfer_uid()))
    assert bytes(here)[10:110] == bytes(there)[20:120]
    assert bytes(there) == pattern(SIZE, 2)


def test_many_small_ones(pair: tuple[Region, Region, IOEngineSession]) -> None:
    here, there, session = pair
    statuses = [session.write(8 * n, SIZE - 8 * (n + 1), 8, n) for n in range(SIZE // 8)]
    for status in statuses:
        succeed(status)
    blocks = [bytes(here)[n : n + 8] for n in range(0, SIZE, 8)]
    assert bytes(there) == b"".join(reversed(blocks))


def test_alive_and_describe(pair: tuple[Region, Region, IOEngineSession]) -> None:
    session = pair[2]
    assert session.alive() is True
    succeed(session.write(0, 0, 8, 0))
    described = session.describe()
    assert isinstance(described, dict)
    assert described["peer"] == "right"
    assert described["path"]


def test_positional_only(pair: tuple[Region, Region, IOEngineSession]) -> None:
    session = pair[2]
    with pytest.raises(TypeError):
        session.write(0, 0, 8, uid=1)
    with pytest.raises(TypeError):
        session.batch_write(local_offs=[0], remote_offs=[0], sizes=[8], uid=1)


def test_uids_are_the_engine_s(engine: IOEngine) -> None:
    region = Region(engine, 64)
    first = engine.create_session(region.desc, region.desc)
    second = engine.create_session(region.desc, region.desc)
    takers = (engine, first, second, engine)
    assert [taker.allocate_transfer_uid() for taker in takers] == [0, 1, 2, 3]


def test_from_unpacked_copies(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(SIZE), memory), Region(right, SIZE, memory)
    local, remote = (MemoryDesc.unpack(region.desc.pack()) for region in (here, there))
    succeed(left.create_session(local, remote).write(0, 0, SIZE, 0))
    assert bytes(there) == bytes(here)


def test_within_one_engine(memory: Memory, make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
    engine = make_engine("self", backend)
    source, target = Region(engine, pattern(SIZE), memory), Region(engine, SIZE, memory)
    session = engine.create_session(source.desc, target.desc)
    succeed(session.write(0, 0, 1024, 0))
    succeed(engine.create_session(target.desc, source.desc).read(1024, 1024, SIZE - 1024, 1))
    assert bytes(target) == bytes(source)


def test_several_sessions_of_a_pair(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(SIZE), memory), Region(right, SIZE, memory)
    sessions = [left.create_session(here.desc, there.desc) for _ in range(4)]
    quarter = SIZE // 4
    for status in [s.write(quarter * n, quarter * n, quarter, n) for n, s in enumerate(sessions)]:
        succeed(status)
    assert bytes(there) == bytes(here)


def test_none_without_a_backend(make_engine: Callable[..., IOEngine]) -> None:
    engine = make_engine("bare", None)
    region = Region(engine, 64)
    assert engine.create_session(region.desc, region.desc) is None


@pytest.mark.parametrize("wrong", [None, b"packed", "desc", 0])
def test_wrong_descriptor_types(engine: IOEngine, wrong: object) -> None:
    region = Region(engine, 64)
    for args in ((region.desc, wrong), (wrong, region.desc)):
        with pytest.raises(TypeError):
            engine.create_session(*args)


def test_ends_with_its_memory(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(SIZE), memory), Region(right, SIZE, memory)
    session = left.create_session(here.desc, there.desc)
    succeed(session.write(0, 0, 8, 0))
    left.deregister_memory(here.desc)
    there.fill(bytes(SIZE))
    assert finish(session.write(0, 0, 8, 1)).value > 10
    assert bytes(there) == bytes(SIZE)


def test_keeps_its_engine_alive(make_engine: Callable[..., IOEngine]) -> None:
    right = make_engine("right")
    there = Region(right, SIZE)

    def session_of_a_dropped_engine() -> tuple[Region, IOEngineSession]:
        from support import new_engine

        left = new_engine("left")
        left.register_remote_engine(right.get_engine_desc())
        right.register_remote_engine(left.get_engine_desc())
        here = Region(left, pattern(SIZE))
        return here, left.create_session(here.desc, there.desc)

    here, session = session_of_a_dropped_engine()
    gc.collect()
    succeed(session.write(0, 0, SIZE, 0))
    assert there.buffer == here.buffer


def test_dropping_a_session_does_not_stop_its_transfers(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    size = 32 << 20
    here, there = Region(left, pattern(1 << 20) * 32, memory), Region(right, size, memory)
    status = left.create_session(here.desc, there.desc).write(0, 0, size, 0)
    gc.collect()
    succeed(status)
    assert bytes(there) == bytes(here)


def test_dropping_the_status_does_not_stop_the_transfer(pair: tuple[Region, Region, IOEngineSession]) -> None:
    here, there, session = pair
    session.write(0, 0, SIZE, 0)
    gc.collect()
    eventually(lambda: bytes(there) == bytes(here))


def test_a_closed_engine_fails_its_sessions(make_engine: Callable[..., IOEngine]) -> None:
    engine = make_engine("closing")
    region = Region(engine, 64)
    session = engine.create_session(region.desc, region.desc)
    engine.close()
    try:
        status = session.write(0, 32, 8, 0)
    except RuntimeError:
        return
    assert finish(status) == StatusCode.ERR_BAD_STATE
