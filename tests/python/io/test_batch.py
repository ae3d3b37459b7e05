# SPDX-License-Identifier: MIT
"""Batches, of sessions and of engines: block lists of every accepted form, and pairs."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gpus import Memory
from mori.io import BackendType, IOEngine, StatusCode
from support import Region, finish, pattern, succeed

SIZE = 1 << 16


def blocks_of(size: int, count: int, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Return non-overlapping blocks, shuffled apart on the two sides: local offsets, remote offsets, sizes."""
    rng = random.Random(seed)
    slot = size // count
    local, remote = ([n * slot for n in range(count)] for _ in range(2))
    rng.shuffle(local)
    rng.shuffle(remote)
    return local, remote, [rng.randint(0, slot) for _ in range(count)]


def moved(source: bytes, target: bytes, source_offs: list[int], target_offs: list[int], sizes: list[int]) -> bytes:
    """The obvious copy that batches are held against."""
    result = bytearray(target)
    for at, to, size in zip(source_offs, target_offs, sizes, strict=True):
        result[to : to + size] = source[at : at + size]
    return bytes(result)


class TestSessionBatch:
    @pytest.mark.parametrize("count", [1, 2, 7, 64, 1000, 4096])
    def test_both_directions(self, memory: Memory, two_engines: tuple[IOEngine, IOEngine], count: int) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(SIZE, 1), memory), Region(right, pattern(SIZE, 2), memory)
        session = left.create_session(here.desc, there.desc)
        local, remote, sizes = blocks_of(SIZE, count, count)
        expected = moved(bytes(here), bytes(there), local, remote, sizes)
        succeed(session.batch_write(local, remote, sizes, session.allocate_transfer_uid()))
        assert bytes(there) == expected
        assert bytes(here) == pattern(SIZE, 1)

        local, remote, sizes = blocks_of(SIZE, count, count + 1)
        expected = moved(bytes(there), bytes(here), remote, local, sizes)
        succeed(session.batch_read(local, remote, sizes, session.allocate_transfer_uid()))
        assert bytes(here) == expected

    def test_contiguous_blocks(self, memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(SIZE), memory), Region(right, SIZE, memory)
        offs = list(range(0, SIZE, 16))
        random.Random(3).shuffle(offs)
        session = left.create_session(here.desc, there.desc)
        succeed(session.batch_write(offs, offs, [16] * len(offs), 0))
        assert bytes(there) == bytes(here)

    def test_large_batch_of_large_blocks(self, memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        size = 48 << 20
        here, there = Region(left, pattern(1 << 20) * 48, memory), Region(right, size, memory)
        session = left.create_session(here.desc, there.desc)
        offs = [n << 20 for n in range(48)]
        succeed(session.batch_write(offs, offs[::-1], [1 << 20] * 48, 0))
        assert bytes(there) == bytes(here)

    def test_empty(self, memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        session = left.create_session(Region(left, 16, memory).desc, Region(right, 16, memory).desc)
        for batch in (session.batch_read, session.batch_write):
            assert finish(batch([], [], [], 0)) == StatusCode.SUCCESS

    def test_zero_sizes(self, memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(64), memory), Region(right, 64, memory)
        session = left.create_session(here.desc, there.desc)
        succeed(session.batch_write([0, 8, 64], [0, 8, 64], [0, 8, 0], 0))
        assert bytes(there) == bytes(8) + bytes(here)[8:16] + bytes(48)
        succeed(session.batch_write([0, 0], [0, 0], [0, 0], 1))


FORMS: dict[str, Callable[[list[int]], Sequence[int]]] = {
    "list": list,
    "tuple": tuple,
    "array": lambda values: array("Q", values),
    "array32": lambda values: array("i", values),
    "memoryview": lambda values: memoryview(array("q", values)),
}


class TestForms:
    @pytest.fixture
    def place(self, engine: IOEngine) -> tuple[IOEngine, Region, Region]:
        return engine, Region(engine, pattern(256)), Region(engine, 256)

    def check(self, place: tuple[IOEngine, Region, Region], local: Any, remote: Any, sizes: Any) -> None:
        engine, source, target = place
        plain = [[int(n) for n in column] for column in (local, remote, sizes)]
        expected = moved(bytes(source), bytes(256), *plain)
        session = engine.create_session(source.desc, target.desc)
        succeed(session.batch_write(local, remote, sizes, 0))
        assert bytes(target) == expected
        target.buffer[:] = bytes(256)
        for status in engine.batch_write([source.desc], [local], [target.desc], [remote], [sizes], [1]):
            succeed(status)
        assert bytes(target) == expected

    @pytest.mark.parametrize("form", FORMS)
    def test_sequence(self, place: tuple[IOEngine, Region, Region], form: str) -> None:
        make = FORMS[form]
        self.check(place, make([0, 64, 128]), make([128, 0, 64]), make([16, 32, 64]))

    def test_range(self, place: tuple[IOEngine, Region, Region]) -> None:
        self.check(place, range(0, 256, 64), range(192, -1, -64), range(8, 40, 8))

    def test_mixed_forms(self, place: tuple[IOEngine, Region, Region]) -> None:
        self.check(place, [0, 64], (64, 0), range(16, 48, 16))

    def test_bools(self, place: tuple[IOEngine, Region, Region]) -> None:
        self.check(place, [False, True], [True, False], [True, True])

    @pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint32", "int16", "uint8"])
    def test_numpy(self, place: tuple[IOEngine, Region, Region], dtype: str) -> None:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        self.check(place, np.array([0, 1], dtype), np.array([1, 0], dtype), np.array([1, 1], dtype))

    def test_numpy_strided_and_reversed(self, place: tuple[IOEngine, Region, Region]) -> None:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        grid = np.arange(0, 256, 8).reshape(8, 4)
        self.check(place, grid[:, 1], grid[::-1, 2], np.full(8, 8))

    def test_numpy_other_byte_order(self, place: tuple[IOEngine, Region, Region]) -> None:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        self.check(place, np.array([0, 64], ">i8"), np.array([64, 0], ">u4"), np.array([8, 8], "<i8"))

    def test_numpy_scalars_in_lists(self, place: tuple[IOEngine, Region, Region]) -> None:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        self.check(place, [np.int64(0), np.uint8(64)], [np.int32(64), 0], [np.uint64(8), True])

    def test_numpy_two_dimensional(self, engine: IOEngine) -> None:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        sources = [Region(engine, pattern(64, n)) for n in range(2)]
        targets = [Region(engine, 64) for _ in range(2)]
        offs, sizes = np.array([[0, 16], [32, 48]]), np.full((2, 2), 16)
        statuses = engine.batch_write(
            [r.desc for r in sources], offs, [r.desc for r in targets], offs, sizes, np.array([5, 6])
        )
        for status, source, target, at in zip(statuses, sources, targets, offs.tolist(), strict=True):
            succeed(status)
            assert bytes(target) == moved(bytes(source), bytes(64), at, at, [16, 16])


class TestEngineBatch:
    def test_one_pair(self, memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(SIZE, 1), memory), Region(right, pattern(SIZE, 2), memory)
        local, remote, sizes = blocks_of(SIZE, 100, 5)
        expected = moved(bytes(here), bytes(there), local, remote, sizes)
        [status] = left.batch_write(
            [here.desc], [local], [there.desc], [remote], [sizes], [left.allocate_transfer_uid()]
        )
        succeed(status)
        assert bytes(there) == expected

    @pytest.mark.parametrize("form", [list, tuple])
    def test_many_pairs(self, memory: Memory, two_engines: tuple[IOEngine, IOEngine], form: type) -> None:
        left, right = two_engines
        count = 12
        here = [Region(left, pattern(4096, n), memory) for n in range(count)]
        there = [Region(right, pattern(4096, 100 + n), memory) for n in range(count)]
        plans = [blocks_of(4096, 1 + n, n) for n in range(count)]
        local, remote, sizes = (form(plan[i] for plan in plans) for i in range(3))
        descs = form(r.desc for r in here), form(r.desc for r in there)
        uids = form(left.allocate_transfer_uid() for _ in range(count))

        expected = [moved(bytes(h), bytes(t), *p) for h, t, p in zip(here, there, plans, strict=True)]
        statuses = left.batch_write(descs[0], local, descs[1], remote, sizes, uids)
        assert isinstance(statuses, list)
        assert len(statuses) == count
        assert left.wait_all(statuses, timeout_ms=10_000) == StatusCode.SUCCESS
        assert [bytes(region) for region in there] == expected

        expected = [moved(bytes(t), bytes(h), p[1], p[0], p[2]) for h, t, p in zip(here, there, plans, strict=True)]
        statuses = left.batch_read(descs[0], local, descs[1], remote, sizes, uids)
        assert left.wait_all(statuses, timeout_ms=10_000) == StatusCode.SUCCESS
        assert [bytes(region) for region in here] == expected

    def test_no_pairs(self, engine: IOEngine) -> None:
        assert engine.batch_write([], [], [], [], [], []) == []
        assert engine.batch_read([], [], [], [], [], []) == []

    def test_pair_without_blocks(self, engine: IOEngine) -> None:
        region = Region(engine, 16)
        [status] = engine.batch_write([region.desc], [[]], [region.desc], [[]], [[]], [0])
        assert finish(status) == StatusCode.SUCCESS

    def test_pairs_to_two_peers(
        self, memory: Memory, make_engine: Callable[..., IOEngine], backend: BackendType
    ) -> None:
        from support import introduce

        hub, one, two = (make_engine(key, backend) for key in ("hub", "one", "two"))
        introduce(hub, one, two)
        source = Region(hub, pattern(64), memory)
        targets = Region(one, 64, memory), Region(two, 64, memory)
        statuses = hub.batch_write(
            [source.desc] * 2, [[0]] * 2, [t.desc for t in targets], [[0]] * 2, [[64]] * 2, [0, 1]
        )
        assert hub.wait_all(statuses, 10_000) == StatusCode.SUCCESS
        assert bytes(targets[0]) == bytes(targets[1]) == bytes(source)

    def test_positional_only(self, engine: IOEngine) -> None:
        with pytest.raises(TypeError):
            engine.batch_write([], [], [], [], [], uids=[])
