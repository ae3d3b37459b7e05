# SPDX-License-Identifier: MIT
"""Waits and tests: each comparison, type and form."""

from __future__ import annotations

import operator
import time
from typing import Any

import numpy as np
import pytest

import mori.shmem as shmem
from ranks import Rank, on_ranks

COMPARISONS = {
    shmem.SHMEM_CMP_EQ: operator.eq,
    shmem.SHMEM_CMP_NE: operator.ne,
    shmem.SHMEM_CMP_GT: operator.gt,
    shmem.SHMEM_CMP_GE: operator.ge,
    shmem.SHMEM_CMP_LT: operator.lt,
    shmem.SHMEM_CMP_LE: operator.le,
}
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def words(rank: Rank, count: int, dtype: Any) -> Any:
    if ("words", count, dtype) not in rank.kept:
        rank.kept["words", count, dtype] = shmem.mori_shmem_create_tensor((count,), dtype)
    rank.kept["words", count, dtype][...] = 0
    shmem.shmem_barrier_all()
    return rank.kept["words", count, dtype]


@on_ranks(1)
@pytest.mark.parametrize("name", INTEGERS)
def test_comparisons_of_each_type(rank: Rank, name: str) -> None:
    word = words(rank, 1, name)
    info = np.iinfo(name)
    values = sorted({int(info.min), max(int(info.min), -1), 0, 1, int(info.max)})
    for there in values:
        word[0] = there
        for value in values:
            for cmp, compare in COMPARISONS.items():
                met = compare(there, value)
                assert shmem.shmem_test(word, cmp, value) is met, (there, cmp, value)
                assert shmem.shmem_test_all(word, 1, None, cmp, value) is met
                if met:
                    shmem.shmem_wait_until(word, cmp, value)


@on_ranks(1)
def test_forms(rank: Rank) -> None:
    x = words(rank, 6, "int32")
    x[...] = [5, 1, 5, 2, 9, 5]
    eq, ge = shmem.SHMEM_CMP_EQ, shmem.SHMEM_CMP_GE
    skip = [True, False, False, False, True, False]
    assert shmem.shmem_test_some(x, 6, None, eq, 5) == [0, 2, 5]
    assert shmem.shmem_test_some(x, 6, skip, eq, 5) == [2, 5]
    assert shmem.shmem_wait_until_some(x, 6, np.array(skip), ge, 2) == [2, 3, 5]
    assert shmem.shmem_test_some(x, 6, None, eq, 7) == []
    assert shmem.shmem_test_any(x, 6, skip, eq, 9) is None
    assert shmem.shmem_wait_until_any(x, 6, [0] * 6, eq, 9) == 4
    assert shmem.shmem_test_any(x, 6, None, eq, 5) in (0, 2, 5)
    assert shmem.shmem_test_all(x, 6, None, ge, 1) is True
    assert shmem.shmem_test_all(x, 6, None, ge, 2) is False
    assert shmem.shmem_test_all(x, 6, [0, 1, 0, 0, 0, 0], ge, 2) is True
    shmem.shmem_wait_until_all(x, 6, None, ge, 1)
    own = [5, 0, 5, 0, 9, 0]
    assert shmem.shmem_test_some_vector(x, 6, None, eq, own) == [0, 2, 4]
    assert shmem.shmem_wait_until_some_vector(x, 6, skip, eq, own) == [2]
    assert shmem.shmem_wait_until_any_vector(x, 6, skip, eq, own) == 2
    assert shmem.shmem_test_any_vector(x, 6, None, shmem.SHMEM_CMP_LT, own) is None
    assert shmem.shmem_test_all_vector(x, 6, None, ge, np.array(own)) is True
    assert shmem.shmem_test_all_vector(x, 6, None, eq, own) is False
    shmem.shmem_wait_until_all_vector(x, 6, None, ge, own)


@on_ranks(1)
def test_of_nothing(rank: Rank) -> None:
    x = words(rank, 6, "int32")
    for status, count in ((None, 0), ([1] * 6, 6)):
        assert shmem.shmem_wait_until_any(x, count, status, 1, 7) is None
        assert shmem.shmem_wait_until_some(x, count, status, 1, 7) == []
        assert shmem.shmem_test_any(x, count, status, 1, 7) is None
        assert shmem.shmem_test_some(x, count, status, 1, 7) == []
        assert shmem.shmem_test_all(x, count, status, 1, 7) is True
        shmem.shmem_wait_until_all(x, count, status, 1, 7)


@on_ranks(4)
@pytest.mark.parametrize("name", ["int32", "uint64"])
def test_others_end_a_wait(rank: Rank, name: str) -> None:
    x = words(rank, rank.size, name)
    for turn in range(1, 30):
        for by in range(rank.size):
            pe = (rank.me + by) % rank.size
            shmem.shmem_p(x[rank.me :], turn, pe)
        shmem.shmem_wait_until_all(x, rank.size, None, shmem.SHMEM_CMP_EQ, turn)
        shmem.shmem_barrier_all()


@on_ranks(2)
def test_a_sleeping_waiter_wakes(rank: Rank) -> None:
    x = words(rank, 1, "int64")
    if rank.me == 1:
        time.sleep(0.3)
        shmem.shmem_atomic_inc(x, 0)
    else:
        assert shmem.shmem_test(x, shmem.SHMEM_CMP_EQ, 1) is False
        shmem.shmem_wait_until(x, shmem.SHMEM_CMP_EQ, 1)
        assert x[0] == 1
    shmem.shmem_barrier_all()


@on_ranks(1)
def test_what_is_refused(rank: Rank) -> None:
    x = words(rank, 6, "int32")
    refused: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "comparison 0", lambda: shmem.shmem_test(x, 0, 1)),
        (ValueError, "comparison 7", lambda: shmem.shmem_wait_until(x, 7, 1)),
        (ValueError, "does not fit into int32", lambda: shmem.shmem_test(x, 1, 2**31)),
        (ValueError, "give dtype", lambda: shmem.shmem_test(int(x.ctypes.data), 1, 1)),
        (ValueError, "not symmetric", lambda: shmem.shmem_test(np.zeros(1, np.int32), 1, 1)),
        (ValueError, "aligned", lambda: shmem.shmem_test(int(x.ctypes.data) + 1, 1, 1, "int32")),
        (ValueError, "integers", lambda: shmem.shmem_test(x.view(np.float32), 1, 1)),
        (ValueError, "do not fit", lambda: shmem.shmem_test_all(x, 7, None, 1, 1)),
        (ValueError, "status has 2", lambda: shmem.shmem_test_all(x, 6, [0, 0], 1, 1)),
        (ValueError, "5 cmp_values for 6", lambda: shmem.shmem_test_all_vector(x, 6, None, 1, [0] * 5)),
        (TypeError, "", lambda: shmem.shmem_test(x, 1, 0.5)),  # type: ignore[arg-type]
        (TypeError, "sequence", lambda: shmem.shmem_test_all_vector(x, 6, None, 1, 5)),  # type: ignore[arg-type]
        (ValueError, "8", lambda: shmem.shmem_signal_fetch(x)),
    ]
    for kind, said, call in refused:
        with pytest.raises(kind, match=said):
            call()
