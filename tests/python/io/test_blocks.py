# SPDX-License-Identifier: MIT
"""Batches of many blocks of one size, as a KV cache has, in every form of sequence, and what is wrong with some."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from gpus import Memory
from mori.io import IOEngine, IOEngineSession, StatusCode
from support import Region, finish, pattern, succeed

COUNT, SIZE, ROOM = 200, 48, 64
POOL = COUNT * ROOM


def offsets(seed: int) -> list[int]:
    """Offsets of blocks that do not overlap, in random order."""
    order = list(range(COUNT))
    random.Random(seed).shuffle(order)
    return [n * ROOM for n in order]


def numpy_array(dtype: str) -> Callable[[list[int]], Any]:
    def make(values: list[int]) -> Any:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        return np.array(values, dtype)

    return make


class Index:
    """An integer that is no int."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


FORMS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "list of other objects": lambda values: [int(str(n)) for n in values],
    "tuple": tuple,
    "array": lambda values: array("Q", values),
    "signed array": lambda values: array("q", values),
    "array of 32 bits": lambda values: array("I", values),
    "int64": numpy_array("int64"),
    "uint64": numpy_array("uint64"),
    "int32": numpy_array("int32"),
    "big endian": numpy_array(">u8"),
    "every other": lambda values: numpy_array("int64")([n for value in values for n in (value, 1)])[::2],
    "indices": lambda values: [Index(n) for n in values],
}


Scene = tuple[IOEngineSession, Region, Region]


@pytest.fixture
def scene(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> Scene:
    """A session with each backend, on host memory and on a GPU."""
    left, right = two_engines
    here, there = Region(left, pattern(POOL, 1), memory), Region(right, pattern(POOL, 2), memory)
    return left.create_session(here.desc, there.desc), here, there


@pytest.fixture
def within(engine: IOEngine) -> Scene:
    """A session of an engine with itself."""
    here, there = Region(engine, pattern(POOL, 1)), Region(engine, pattern(POOL, 2))
    return engine.create_session(here.desc, there.desc), here, there


def moved(source: bytes, target: bytes, source_offs: list[int], target_offs: list[int]) -> bytes:
    """The obvious copy that batches are held against."""
    result = bytearray(target)
    for at, to in zip(source_offs, target_offs, strict=True):
        result[to : to + SIZE] = source[at : at + SIZE]
    return bytes(result)


@pytest.mark.parametrize("form", FORMS)
def test_both_directions(scene: Scene, form: str) -> None:
    session, here, there = scene
    make, local, remote = FORMS[form], offsets(1), offsets(2)
    expected = moved(bytes(here), bytes(there), local, remote)
    succeed(session.batch_write(make(local), make(remote), make([SIZE] * COUNT), 0))
    assert bytes(there) == expected
    local = offsets(3)
    expected = moved(bytes(there), bytes(here), remote, local)
    succeed(session.batch_read(make(local), make(remote), make([SIZE] * COUNT), 1))
    assert bytes(here) == expected


@pytest.mark.parametrize("form", FORMS)
def test_the_last_may_differ(within: Scene, form: str) -> None:
    session, here, there = within
    make, local, remote = FORMS[form], offsets(4), offsets(5)
    expected = moved(bytes(here), bytes(there), local[:-1], remote[:-1])
    succeed(session.batch_write(make(local), make(remote), make([SIZE] * (COUNT - 1) + [0]), 0))
    assert bytes(there) == expected


def test_the_arrays_are_the_callers_again(within: Scene) -> None:
    session, here, there = within
    columns = [array("Q", offsets(6)), array("Q", offsets(7)), array("Q", [SIZE] * COUNT)]
    expected = moved(bytes(here), bytes(there), list(columns[0]), list(columns[1]))
    status = session.batch_write(columns[0], columns[1], columns[2], 0)
    for column in columns:
        for i in range(COUNT):
            column[i] = 0
        column.append(1)  # no view of the memory is left
    succeed(status)
    assert bytes(there) == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("column", range(2))
def test_one_outside(within: Scene, form: str, column: int) -> None:
    session, _, there = within
    before = bytes(there)
    columns = [offsets(8), offsets(9)]
    columns[column][150] = POOL - SIZE + 1
    make = FORMS[form]
    status = session.batch_write(make(columns[0]), make(columns[1]), make([SIZE] * COUNT), 0)
    assert finish(status) == StatusCode.ERR_INVALID_ARGS
    which = ("local", "remote")[column]
    assert f"entry 150, {which} offset {POOL - SIZE + 1} + {SIZE} bytes: length out of range" in status.Message()
    assert bytes(there) == before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("column", range(3))
def test_counts_differ(within: Scene, form: str, column: int) -> None:
    session, _, there = within
    before = bytes(there)
    columns = [offsets(8), offsets(9), [SIZE] * COUNT]
    del columns[column][-1]
    status = session.batch_read(*map(FORMS[form], columns), 0)
    assert finish(status) == StatusCode.ERR_INVALID_ARGS
    assert "want equal counts" in status.Message()
    assert bytes(there) == before


@pytest.mark.parametrize("size", [0, 2**32, 2**64 - 1])
@pytest.mark.parametrize("form", ["list", "array", "uint64"])
def test_sizes_that_blocks_do_not_have(within: Scene, form: str, size: int) -> None:
    session, _, there = within
    before = bytes(there)
    make = FORMS[form]
    status = session.batch_write(make(offsets(1)), make(offsets(2)), make([size] * COUNT), 0)
    assert finish(status) == (StatusCode.ERR_INVALID_ARGS if size else StatusCode.SUCCESS)
    assert bytes(there) == before


@pytest.mark.parametrize("form", ["list", "signed array", "int64", "indices"])
@pytest.mark.parametrize("column", range(3))
def test_negative(within: Scene, form: str, column: int) -> None:
    session, _, _ = within
    columns = [offsets(8), offsets(9), [SIZE] * COUNT]
    columns[column] = [-5] * COUNT if column == 2 else [*columns[column][:-1], -5]
    made = [*map(FORMS[form], columns)]
    with pytest.raises(TypeError, match=r"-5 is not in 0\.\.2\*\*64-1"):
        session.batch_write(*made, 0)
    if isinstance(made[column], array):
        made[column].append(1)  # the view of it ended
