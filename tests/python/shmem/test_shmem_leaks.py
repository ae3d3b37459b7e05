# SPDX-License-Identifier: MIT
"""Calls that leave nothing behind in the interpreter: no memory, and no reference too many or too few."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import mori.shmem as shmem
from ranks import Rank, Ranks, on_ranks

ROUNDS = 200


def calls(x: Any, words: Any, local: Any, pe: int) -> list[Callable[[], object]]:
    """Each hot function, and each way in which it refuses."""
    world, address = shmem.SHMEM_TEAM_WORLD, int(x.ctypes.data)
    return [
        lambda: shmem.shmem_put(x, local, 8, pe),
        lambda: shmem.shmem_put_nbi(x, local, 8, pe),
        lambda: shmem.shmem_get(local, x, 8, pe, "float32"),
        lambda: shmem.shmem_putmem(address, b"12345678", 8, pe),
        lambda: shmem.shmem_p(x, 1.5, pe),
        lambda: shmem.shmem_g(x, pe),
        lambda: shmem.shmem_iput(x, local, 2, 1, 4, pe),
        lambda: shmem.shmem_put_signal(x, local, 8, words[1:], 0, shmem.SHMEM_SIGNAL_SET, pe),
        lambda: shmem.shmem_atomic_fetch_add(words, 1, pe),
        lambda: shmem.shmem_atomic_set(words, 0, pe),
        lambda: shmem.shmem_test(words, shmem.SHMEM_CMP_EQ, 5),
        lambda: shmem.shmem_test_some(words, 8, [0] * 8, shmem.SHMEM_CMP_GE, 0),
        lambda: shmem.shmem_test_all_vector(words, 8, None, shmem.SHMEM_CMP_GE, [0] * 8),
        lambda: shmem.shmem_wait_until_any(words, 8, None, shmem.SHMEM_CMP_GE, 0),
        lambda: shmem.shmem_signal_fetch(words),
        lambda: shmem.shmem_signal_wait_until(words[1:], shmem.SHMEM_CMP_EQ, 0),
        lambda: shmem.shmem_ptr(x, pe),
        shmem.shmem_fence,
        shmem.shmem_quiet,
        shmem.shmem_barrier_all,
        world.barrier,
        lambda: world.sum_reduce(x, x, 8),
        lambda: shmem.shmem_put(x, local, 9, pe),
        lambda: shmem.shmem_put(x, local, 8, 99),
        lambda: shmem.shmem_put(x, np.zeros(8), 8, pe),
        lambda: shmem.shmem_put("x", local, 8, pe),
        lambda: shmem.shmem_put(x, local[::2], 4, pe),
        lambda: shmem.shmem_put(x, local, 8, pe, "nothing"),
        lambda: shmem.shmem_p(words, 2**70, pe),
        lambda: shmem.shmem_test_all_vector(words, 8, None, 1, [0] * 7 + ["0"]),
        lambda: shmem.shmem_test_all(words, 8, [0] * 3, 1, 0),
        lambda: shmem.shmem_signal_fetch(local),
        lambda: world.broadcast(x, local, 8, 0),
    ]


def attempt(call: Callable[[], object]) -> None:
    try:
        call()
    except (RuntimeError, TypeError):
        pass


def many_times(call: Callable[[], object], held: tuple[object, ...]) -> tuple[int, int]:
    """Return by how many bytes the interpreter has grown, and by how many references to one of what it holds."""
    before = [sys.getrefcount(o) for o in held]
    tracemalloc.start()
    for _ in range(ROUNDS):
        attempt(call)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return grown, max(abs(sys.getrefcount(o) - b) for o, b in zip(held, before, strict=True))


def everything_many_times(rank: Rank) -> list[tuple[int, int]]:
    """Return how many bytes each call has left behind, by its place in the list."""
    x, words = shmem.mori_shmem_create_tensor((8,), np.float32), shmem.mori_shmem_create_tensor((8,), np.int64)
    local = np.ones(8, np.float32)
    x[...], words[...] = 1, 0
    held = (x, words, local, x.dtype, words.dtype, None)
    left = []
    for number, call in enumerate(calls(x, words, local, (rank.me + 1) % rank.size)):
        many_times(call, held)  # fills caches
        grown, references = min(many_times(call, held) for _ in range(2))
        if grown > 8 * ROUNDS or references > ROUNDS // 4:
            left.append((number, grown))
    shmem.shmem_barrier_all()
    return left


def test_on_one_host(ranks: Ranks) -> None:
    assert ranks.world(2).run(everything_many_times) == [[], []]


def test_between_hosts(ranks: Ranks) -> None:
    # 1 is put_nbi, which keeps its source until quiet
    for left in ranks.world(2, hosts=2).run(everything_many_times):
        assert {number for number, _ in left} <= {1}


def test_with_nics(nic_ranks: Ranks) -> None:
    for left in nic_ranks.world(2, hosts=2).run(everything_many_times, timeout=60):
        assert {number for number, _ in left} <= {1}


@on_ranks(1)
def test_address_that_is_not_there(rank: Rank) -> None:
    del rank
    x = shmem.mori_shmem_create_tensor((1024,), np.uint8)
    for junk in (0, 1, 4096, 2**47, 2**63, 2**64 - 8):
        for call in (
            lambda junk=junk: shmem.shmem_putmem(x, junk, 8, 0),
            lambda junk=junk: shmem.shmem_getmem(junk, x, 8, 0),
            lambda junk=junk: shmem.shmem_putmem(junk, x, 8, 0),
        ):
            refused = False
            try:
                call()
            except ValueError:
                refused = True
            assert refused, hex(junk)
    shmem.mori_shmem_free_tensor(x)


def keep_going(rank: Rank) -> bool:
    """Put without ever calling quiet."""
    x = shmem.mori_shmem_create_tensor((8,), np.int64)
    for turn in range(10_000):
        shmem.shmem_put_nbi(x, np.full(8, turn), 8, (rank.me + 1) % rank.size)
    shmem.SHMEM_TEAM_WORLD.barrier()
    return bool((x == 9_999).all() or x.max() < 10_000)


def test_puts_without_quiet(ranks: Ranks) -> None:
    assert all(ranks.world(2, hosts=2).run(keep_going))


def test_puts_with_nics_without_quiet(nic_ranks: Ranks) -> None:
    assert all(nic_ranks.world(2, hosts=2).run(keep_going))
