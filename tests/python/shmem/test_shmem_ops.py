# SPDX-License-Identifier: MIT
"""Puts, gets, strides, signals and atomics, against numpy."""

from __future__ import annotations

import array
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mori.shmem as shmem
from ranks import Rank, Ranks, on_ranks

NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
MOVED = [*NUMBERS, "float16", "bool", "complex64", "complex128", "bfloat16", "float8_e5m2"]


def beside(rank: Rank, by: int = 1) -> int:
    return (rank.me + by) % rank.size


def heap(rank: Rank, count: int, dtype: Any) -> Any:
    """The same zeroed symmetric array for each test that asks for it."""
    kept = rank.kept
    if ("heap", count, str(dtype)) not in kept:
        kept["heap", count, str(dtype)] = shmem.mori_shmem_create_tensor((count,), dtype)
    tensor = kept["heap", count, str(dtype)]
    tensor.view(np.uint8)[...] = 0
    shmem.shmem_barrier_all()
    return tensor


def some(count: int, dtype: Any, seed: int) -> Any:
    from mori.tensor_utils import numpy_dtype

    wanted = numpy_dtype(dtype)
    raw = np.random.default_rng(seed).integers(0, 2, count * wanted.itemsize, dtype=np.uint8)
    return raw.view(wanted)


@on_ranks(2)
@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("act", ["put", "put_nbi", "get", "get_nbi"])
def test_elements_of_each_type_move(rank: Rank, name: str, act: str) -> None:
    symmetric = heap(rank, 100, name)
    if act.startswith("put"):
        getattr(shmem, f"shmem_{act}")(symmetric, some(100, name, rank.me), 100, beside(rank))
        shmem.shmem_barrier_all()
        got = symmetric
    else:
        symmetric[...] = some(100, name, rank.me)
        shmem.shmem_barrier_all()
        got = some(100, name, 99)
        getattr(shmem, f"shmem_{act}")(got, symmetric, 100, beside(rank))
        shmem.shmem_quiet()
    assert got.tobytes() == some(100, name, beside(rank, -1)).tobytes()
    shmem.shmem_barrier_all()


@on_ranks(2)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 4096, 65536, 65537, 1 << 20, 5_000_011])
def test_bytes_of_each_size_move(rank: Rank, size: int) -> None:
    symmetric = heap(rank, 5_000_011, np.uint8)
    mine, theirs = random.Random(rank.me).randbytes(size), random.Random(beside(rank)).randbytes(size)
    shmem.shmem_putmem(symmetric, mine, size, beside(rank))
    shmem.shmem_barrier_all()
    assert symmetric[:size].tobytes() == theirs
    assert not symmetric[size : size + 64].any()
    landing = bytearray(size)
    shmem.shmem_getmem(landing, symmetric, size, beside(rank))
    assert landing == mine
    shmem.shmem_barrier_all()


@on_ranks(2)
def test_what_memory_may_be(rank: Rank) -> None:
    symmetric = heap(rank, 64, np.float32)
    values = np.arange(64, dtype=np.float32)
    address, peer = int(symmetric.ctypes.data), beside(rank)
    for dest, source, dtype in [
        (symmetric, values, None),
        (address, values, None),
        (symmetric, values.tobytes(), None),
        (symmetric, bytearray(values.tobytes()), np.float32),
        (symmetric, memoryview(values.tobytes()), "float32"),
        (symmetric, array.array("f", values.tolist()), None),
        (address, int(values.ctypes.data), np.dtype(np.float32)),
        (address, int(values.ctypes.data), "float32"),
        (symmetric[:], values[::-1][::-1], None),
    ]:
        shmem.shmem_put(dest, source, 64, peer, dtype)
        shmem.shmem_barrier_all()
        assert symmetric.tolist() == values.tolist()
        shmem.shmem_barrier_all()
        symmetric[...] = 0
        shmem.shmem_barrier_all()
    shmem.shmem_put(symmetric, values, None, peer)
    shmem.shmem_barrier_all()
    landing = np.zeros(64, np.float32)
    shmem.shmem_get(landing, symmetric, None, peer)
    assert landing.tolist() == values.tolist()
    shmem.shmem_get(landing[8:16], symmetric[0:8], 8, peer)
    assert landing[8:16].tolist() == list(range(8))
    shmem.shmem_barrier_all()


@pytest.mark.usefixtures("torch_here")
@on_ranks(2)
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "float8_e4m3fn"])
def test_torch_tensors_move(rank: Rank, name: str) -> None:
    import torch

    dtype = getattr(torch, name)
    symmetric = shmem.mori_shmem_create_tensor((4, 8), dtype)
    shmem.shmem_put(symmetric, torch.full((4, 8), rank.me + 1.0).to(dtype), None, beside(rank))
    shmem.shmem_barrier_all()
    assert symmetric.float().sum() == 32 * (beside(rank) + 1)
    landing = torch.zeros(32, dtype=dtype)
    shmem.shmem_get(landing, symmetric, 32, beside(rank))
    assert landing.float().sum() == 32 * (rank.me + 1)
    with pytest.raises(ValueError, match="contiguous"):
        shmem.shmem_put(symmetric, torch.zeros((8, 4), dtype=dtype).t(), 32, 0)
    with pytest.raises(ValueError, match="host memory"):
        shmem.shmem_put(symmetric, torch.zeros(32, dtype=dtype, device="meta"), 32, 0)
    shmem.shmem_barrier_all()
    shmem.mori_shmem_free_tensor(symmetric)


@on_ranks(2)
@pytest.mark.parametrize("name", NUMBERS)
def test_one_number(rank: Rank, name: str) -> None:
    symmetric = heap(rank, 8, name)
    least, most = (-3.5, 1e6) if name.startswith("float") else (np.iinfo(name).min, np.iinfo(name).max)
    for value in (least, most):
        shmem.shmem_p(symmetric, value, beside(rank))
        shmem.shmem_p(int(symmetric.ctypes.data) + symmetric.itemsize, value, beside(rank), name)
        shmem.shmem_barrier_all()
        assert symmetric[:3].tolist() == [value, value, 0]
        assert shmem.shmem_g(symmetric, beside(rank)) == value
        assert shmem.shmem_g(symmetric[2:], beside(rank)) == 0
        shmem.shmem_barrier_all()


@on_ranks(2)
@pytest.mark.parametrize(("dst", "sst"), [(1, 1), (2, 1), (1, 3), (5, 4)])
@pytest.mark.parametrize("name", ["uint8", "int32", "complex128"])
def test_strides(rank: Rank, name: str, dst: int, sst: int) -> None:
    symmetric, values = heap(rank, 64, name), np.arange(64).astype(name)
    shmem.shmem_iput(symmetric, values, dst, sst, 12, beside(rank))
    shmem.shmem_barrier_all()
    expected = np.zeros(64, name)
    expected[: 12 * dst : dst] = values[: 12 * sst : sst]
    assert symmetric.tolist() == expected.tolist()
    landing, gathered = np.zeros(64, name), np.zeros(64, name)
    shmem.shmem_iget(landing, symmetric, sst, dst, 12, beside(rank))
    gathered[: 12 * sst : sst] = expected[: 12 * dst : dst]
    assert landing.tolist() == gathered.tolist()
    shmem.shmem_barrier_all()


@on_ranks(4)
@pytest.mark.parametrize("act", ["put_signal", "put_signal_nbi", "putmem_signal", "putmem_signal_nbi"])
def test_who_sees_the_signal_sees_the_bytes(rank: Rank, act: str) -> None:
    symmetric, signals = heap(rank, 1000, np.int64), heap(rank, 2, np.uint64)
    put = getattr(shmem, f"shmem_{act}")
    count = 8000 if "mem" in act else 1000
    for turn in range(1, 20):
        put(symmetric, np.full(1000, turn), count, signals, turn, shmem.SHMEM_SIGNAL_SET, beside(rank))
        put(symmetric, b"", 0, signals[1:], 2, shmem.SHMEM_SIGNAL_ADD, beside(rank))
        assert shmem.shmem_signal_wait_until(signals, shmem.SHMEM_CMP_GE, turn) == turn
        assert (symmetric == turn).all()
        assert shmem.shmem_signal_wait_until(signals[1:], shmem.SHMEM_CMP_EQ, 2 * turn) == 2 * turn
        assert shmem.shmem_signal_fetch(signals) == turn
        shmem.shmem_barrier_all()


ATOMIC = ["int32", "uint32", "int64", "uint64"]


@on_ranks(4)
@pytest.mark.parametrize("name", ATOMIC)
def test_atomics_count_exactly(rank: Rank, name: str) -> None:
    word = heap(rank, 1, name)
    seen = []
    for _ in range(100):
        seen.append(shmem.shmem_atomic_fetch_add(word, 3, 0))
        shmem.shmem_atomic_inc(word, 0)
        shmem.shmem_atomic_add(word, 2, 0)
        seen.append(shmem.shmem_atomic_fetch_inc(word, 0))
    assert seen == sorted(set(seen))
    shmem.shmem_barrier_all()
    assert shmem.shmem_atomic_fetch(word, 0) == 7 * 100 * rank.size
    shmem.shmem_barrier_all()


@on_ranks(2)
@pytest.mark.parametrize("name", ATOMIC)
def test_each_atomic(rank: Rank, name: str) -> None:
    word, peer = heap(rank, 2, name), beside(rank)
    low, high = int(np.iinfo(name).min), int(np.iinfo(name).max)
    shmem.shmem_atomic_set(word, high, peer)
    assert shmem.shmem_atomic_fetch(word, peer) == high
    assert shmem.shmem_atomic_fetch_add(word, 1, peer) == high
    assert shmem.shmem_atomic_swap(word, 0b1100, peer) == low, "it wraps"
    assert shmem.shmem_atomic_fetch_and(word, 0b0110, peer) == 0b1100
    assert shmem.shmem_atomic_fetch_or(word, 0b0011, peer) == 0b0100
    assert shmem.shmem_atomic_fetch_xor(word, 0b0101, peer) == 0b0111
    assert shmem.shmem_atomic_compare_swap(word, 5, 9, peer) == 0b0010
    assert shmem.shmem_atomic_compare_swap(word, 2, 9, peer) == 2
    shmem.shmem_atomic_and(word, 0b1000, peer)
    shmem.shmem_atomic_or(word, 0b0001, peer)
    shmem.shmem_atomic_xor(word, 0b1111, peer)
    address = int(word.ctypes.data)
    assert shmem.shmem_atomic_fetch(address, peer, name) == 0b0110
    assert shmem.shmem_g(word[1:], peer) == 0
    shmem.shmem_barrier_all()


@on_ranks(2)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_atomics_of_floats(rank: Rank, name: str) -> None:
    word, peer = heap(rank, 1, name), beside(rank)
    shmem.shmem_atomic_set(word, 1.5, peer)
    assert shmem.shmem_atomic_swap(word, -2.25, peer) == 1.5
    assert shmem.shmem_atomic_fetch(word, peer) == -2.25
    with pytest.raises(ValueError, match="integers of 4 and 8 bytes"):
        shmem.shmem_atomic_fetch_add(word, 1, peer)
    shmem.shmem_barrier_all()


@on_ranks(2)
def test_what_is_refused(rank: Rank) -> None:
    symmetric, values = heap(rank, 64, np.float32), np.zeros(64, np.float32)
    words = heap(rank, 8, np.int64)
    address, ordinary = int(symmetric.ctypes.data), np.zeros(64, np.float32)
    refused: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "no PE 2|PE 2", lambda: shmem.shmem_put(symmetric, values, 64, 2)),
        (ValueError, "PE -1", lambda: shmem.shmem_put(symmetric, values, 64, -1)),
        (ValueError, "PE", lambda: shmem.shmem_put(symmetric, values, 64, 2**40)),
        (ValueError, "not symmetric", lambda: shmem.shmem_put(ordinary, values, 64, 0)),
        (ValueError, "not symmetric", lambda: shmem.shmem_get(values, ordinary, 64, 0)),
        (ValueError, "not symmetric", lambda: shmem.shmem_putmem(0, values, 64, 0)),
        (ValueError, "not symmetric", lambda: shmem.shmem_putmem(address, int(values.ctypes.data), 2**33, 0)),
        (ValueError, "do not fit into dest of 256", lambda: shmem.shmem_put(symmetric, values, 65, 0)),
        (ValueError, "do not fit into source of 32", lambda: shmem.shmem_put(symmetric, values[:8], 64, 0)),
        (ValueError, "exceed the address space", lambda: shmem.shmem_put(address, 4096, 2**62, 0, "int64")),
        (ValueError, "element type", lambda: shmem.shmem_put(symmetric, np.zeros(64), 64, 0)),
        (ValueError, "element type", lambda: shmem.shmem_put(symmetric, values, 64, 0, "int32")),
        (ValueError, "give dtype", lambda: shmem.shmem_put(address, b"abcd", 1, 0)),
        (ValueError, "how many", lambda: shmem.shmem_putmem(symmetric, address, None, 0)),
        (ValueError, "contiguous", lambda: shmem.shmem_put(symmetric, np.zeros(128, np.float32)[::2], 64, 0)),
        (ValueError, "writable", lambda: shmem.shmem_getmem(b"1234", symmetric, 4, 0)),
        (ValueError, "unsupported dtype", lambda: shmem.shmem_put(address, values, 1, 0, "int3")),
        (ValueError, "byte order", lambda: shmem.shmem_put(address, np.zeros(4, ">i4"), 4, 0)),
        (TypeError, "dest is str", lambda: shmem.shmem_put("here", values, 64, 0)),
        (TypeError, "source is NoneType", lambda: shmem.shmem_put(symmetric, None, 64, 0)),
        (TypeError, "source is list", lambda: shmem.shmem_put(symmetric, [1.0], 1, 0)),
        (TypeError, "-1 is not in", lambda: shmem.shmem_put(symmetric, values, -1, 0)),
        (TypeError, "", lambda: shmem.shmem_put(symmetric, values, 1.5, 0)),  # type: ignore[arg-type]
        (TypeError, "", lambda: shmem.shmem_put(symmetric, values, 64, "1")),  # type: ignore[arg-type]
        (ValueError, "does not fit into int64", lambda: shmem.shmem_p(words, 2**63, 0)),
        (ValueError, "does not fit into uint8", lambda: shmem.shmem_p(address, -1, 0, "uint8")),
        (TypeError, "", lambda: shmem.shmem_p(words, 1.5, 0)),
        (ValueError, "moved whole", lambda: shmem.shmem_p(address, 1, 0, "bfloat16")),
        (ValueError, "moved whole", lambda: shmem.shmem_g(address, 0, "complex64")),
        (ValueError, "do not fit", lambda: shmem.shmem_iput(symmetric, values, 2, 1, 33, 0)),
        (ValueError, "do not fit", lambda: shmem.shmem_iput(symmetric, values, 1, 2**62, 33, 0)),
        (ValueError, "signal", lambda: shmem.shmem_put_signal(symmetric, values, 1, words, 1, 7, 0)),
        (ValueError, "8", lambda: shmem.shmem_put_signal(symmetric, values, 1, symmetric, 1, 9, 0)),
        (ValueError, "aligned", lambda: shmem.shmem_atomic_inc(address + 4, 0, "int64")),
        (ValueError, "", lambda: shmem.shmem_atomic_inc(address, 0, "int16")),
        (ValueError, "not symmetric", lambda: shmem.shmem_atomic_inc(ordinary.view(np.int32), 0)),
        (ValueError, "PE", lambda: shmem.shmem_atomic_inc(words, 5)),
    ]
    for kind, said, call in refused:
        with pytest.raises(kind, match=said):
            call()
    shmem.shmem_put(symmetric, values, 64, beside(rank))
    shmem.shmem_barrier_all()
    assert not symmetric.any()
    shmem.shmem_barrier_all()


COUNT = 256
STEP = st.tuples(
    st.sampled_from(["put", "get", "p", "iput", "iget", "add", "swap", "xor", "signal"]),
    st.integers(0, 1),  # which PE acts
    st.integers(0, 1),  # on which
    st.integers(0, COUNT - 1),
    st.integers(0, 40),
    st.integers(0, 2**63 - 1),
)


def act(step: tuple[str, int, int, int, int, int], memory: Any, local: Any) -> None:
    """Do one step with mori.shmem."""
    what, _, pe, at, n, value = step
    n = min(n, COUNT - at)
    strided = (n + 1) // 2
    if what == "put":
        shmem.shmem_put(memory[at:], local[at:], n, pe)
    elif what == "get":
        shmem.shmem_get(local[at:], memory[at:], n, pe)
    elif what == "p":
        shmem.shmem_p(memory[at:], value, pe)
    elif what == "iput":
        shmem.shmem_iput(memory[at:], local, 2, 1, strided, pe)
    elif what == "iget":
        shmem.shmem_iget(local, memory[at:], 1, 2, strided, pe)
    elif what == "add":
        local[at] = shmem.shmem_atomic_fetch_add(memory[at:], n, pe)
    elif what == "swap":
        local[at] = shmem.shmem_atomic_swap(memory[at:], value, pe)
    elif what == "xor":
        shmem.shmem_atomic_xor(memory[at:], value, pe)
    else:
        shmem.shmem_put_signal(memory[:at], local, min(n, at), memory[at:], value, shmem.SHMEM_SIGNAL_ADD, pe)


def model(step: tuple[str, int, int, int, int, int], memories: list[Any], locals_: list[Any]) -> None:
    """Do the same with numpy."""
    what, actor, pe, at, n, value = step
    n = min(n, COUNT - at)
    strided = (n + 1) // 2
    memory, local, word = memories[pe], locals_[actor], np.uint64(value)
    if what == "put":
        memory[at : at + n] = local[at : at + n]
    elif what == "get":
        local[at : at + n] = memory[at : at + n]
    elif what == "p":
        memory[at] = word
    elif what == "iput":
        memory[at : at + 2 * strided : 2][:strided] = local[:strided]
    elif what == "iget":
        local[:strided] = memory[at : at + 2 * strided : 2][:strided]
    elif what == "add":
        local[at] = memory[at]
        memory[at] += np.uint64(n)
    elif what == "swap":
        local[at], memory[at] = memory[at], word
    elif what == "xor":
        memory[at] ^= word
    else:
        memory[: min(n, at)] = local[: min(n, at)]
        memory[at] += word


def play(rank: Rank, steps: list[tuple[str, int, int, int, int, int]]) -> tuple[bytes, bytes]:
    memory = heap(rank, COUNT, np.uint64)
    local = np.arange(COUNT, dtype=np.uint64) * np.uint64(7919 + rank.me)
    shmem.shmem_barrier_all()
    for step in steps:
        if step[1] == rank.me:
            act(step, memory, local)
        shmem.shmem_barrier_all()
    return memory.tobytes(), local.tobytes()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=24))
def test_any_order_of_ops_is_what_numpy_says(ranks: Ranks, steps: list[tuple[str, int, int, int, int, int]]) -> None:
    memories = [np.zeros(COUNT, np.uint64) for _ in range(2)]
    locals_ = [np.arange(COUNT, dtype=np.uint64) * np.uint64(7919 + pe) for pe in range(2)]
    with np.errstate(over="ignore"):
        for step in steps:
            model(step, memories, locals_)
    expected = [(m.tobytes(), x.tobytes()) for m, x in zip(memories, locals_, strict=True)]
    assert ranks.world(2).run(play, steps) == expected
