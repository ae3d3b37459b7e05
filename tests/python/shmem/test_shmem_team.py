# SPDX-License-Identifier: MIT
"""Teams and what their members do together, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mori.shmem as shmem
from mori.shmem import SHMEM_TEAM_SHARED, SHMEM_TEAM_WORLD, Team
from ranks import Rank, on_ranks

REDUCTIONS: dict[str, Any] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "sum": np.add,
    "prod": np.multiply,
}
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float32", "float64", "float16", "bfloat16"]


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def symmetric(rank: Rank, what: str, count: int, name: str) -> Any:
    key = what, count, name
    if key not in rank.kept:
        rank.kept[key] = shmem.mori_shmem_create_tensor((count,), name)
    rank.kept[key].view(np.uint8)[...] = 0
    shmem.shmem_barrier_all()
    return rank.kept[key]


def values(pe: int, count: int, name: str) -> Any:
    """What PE pe has: small whole numbers, which every type holds and every order of additions gives the same of."""
    return (np.random.default_rng(pe).integers(1, 4, count)).astype(dtype_of(name))


@on_ranks(4)
def test_the_first_teams(rank: Rank) -> None:
    for team in (SHMEM_TEAM_WORLD, SHMEM_TEAM_SHARED):
        assert (team.my_pe(), team.n_pes()) == (rank.me, rank.size)
        assert (shmem.shmem_team_my_pe(team), shmem.shmem_team_n_pes(team)) == (rank.me, rank.size)
        team.sync()
        team.barrier()
        shmem.shmem_team_sync(team)
    assert shmem.shmem_team_translate_pe(SHMEM_TEAM_WORLD, 2, SHMEM_TEAM_SHARED) == 2
    assert SHMEM_TEAM_WORLD.translate_pe(rank.size, SHMEM_TEAM_SHARED) == -1
    assert SHMEM_TEAM_WORLD.translate_pe(-1, SHMEM_TEAM_SHARED) == -1


@on_ranks(1)
def test_no_team(rank: Rank) -> None:
    del rank
    none = shmem.SHMEM_TEAM_INVALID
    assert none is None
    assert shmem.shmem_team_my_pe(none) == shmem.shmem_team_n_pes(none) == -1
    assert shmem.shmem_team_translate_pe(none, 0, SHMEM_TEAM_WORLD) == -1
    shmem.shmem_team_destroy(none)


@on_ranks(8)
def test_split_strided(rank: Rank) -> None:
    odd = shmem.shmem_team_split_strided(SHMEM_TEAM_WORLD, 1, 2, 4)
    if rank.me % 2 == 0:
        assert odd is None
        return
    assert isinstance(odd, Team)
    assert (odd.my_pe(), odd.n_pes()) == (rank.me // 2, 4)
    assert [odd.translate_pe(pe, SHMEM_TEAM_WORLD) for pe in range(4)] == [1, 3, 5, 7]
    assert [SHMEM_TEAM_WORLD.translate_pe(pe, odd) for pe in range(8)] == [-1, 0, -1, 1, -1, 2, -1, 3]
    backwards = odd.split_strided(3, -1, 4)
    assert backwards is not None
    assert backwards.my_pe() == 3 - odd.my_pe()
    backwards.sync()
    shmem.shmem_team_destroy(backwards)
    with pytest.raises(RuntimeError):
        backwards.my_pe()
    odd.destroy()


@on_ranks(8)
def test_split_2d(rank: Rank) -> None:
    row, column = shmem.shmem_team_split_2d(SHMEM_TEAM_WORLD, 3)
    assert (row.my_pe(), column.my_pe()) == (rank.me % 3, rank.me // 3)
    assert row.n_pes() == (2 if rank.me >= 6 else 3)
    assert column.n_pes() == (2 if rank.me % 3 == 2 else 3)
    row.barrier()
    column.barrier()
    row.destroy()
    column.destroy()


@on_ranks(2)
def test_splits_that_are_refused(rank: Rank) -> None:
    del rank
    for start, stride, size in ((2, 1, 1), (-1, 1, 1), (0, 1, 3), (0, 2, 2), (0, 1, 0), (0, 0, 2)):
        with pytest.raises(ValueError, match="split"):
            SHMEM_TEAM_WORLD.split_strided(start, stride, size)
    with pytest.raises(ValueError, match="split"):
        SHMEM_TEAM_WORLD.split_2d(0)
    with pytest.raises(ValueError, match="world"):
        SHMEM_TEAM_WORLD.destroy()
    SHMEM_TEAM_WORLD.sync()


@on_ranks(4)
@pytest.mark.parametrize("count", [1, 3, 1000, 70_001])
def test_movements(rank: Rank, count: int) -> None:
    n, name = rank.size, "int32"
    source, dest = symmetric(rank, "source", count * n, name), symmetric(rank, "dest", count * n, name)
    all_values = [values(pe, count * n, name) for pe in range(n)]
    source[...] = all_values[rank.me]
    shmem.shmem_broadcast(SHMEM_TEAM_WORLD, dest, source, count, n - 1)
    assert dest[:count].tolist() == all_values[n - 1][:count].tolist()
    assert not dest[count:].any()
    shmem.shmem_fcollect(SHMEM_TEAM_WORLD, dest, source, count)
    assert dest.tolist() == np.concatenate([v[:count] for v in all_values]).tolist()
    shmem.shmem_alltoall(SHMEM_TEAM_WORLD, dest, source, count)
    at = slice(rank.me * count, (rank.me + 1) * count)
    assert dest.tolist() == np.concatenate([v[at] for v in all_values]).tolist()
    own = [count * pe // n for pe in range(n)]
    shmem.shmem_collect(SHMEM_TEAM_WORLD, dest, source, own[rank.me])
    assert dest[: sum(own)].tolist() == np.concatenate([v[:k] for v, k in zip(all_values, own, strict=True)]).tolist()
    shmem.shmem_barrier_all()


@on_ranks(4)
@pytest.mark.parametrize(("dst", "sst"), [(1, 1), (2, 3)])
def test_strided_alltoall(rank: Rank, dst: int, sst: int) -> None:
    n, count = rank.size, 5
    source, dest = symmetric(rank, "source", 3 * n * count, "int64"), symmetric(rank, "dest", 3 * n * count, "int64")
    source[...] = np.arange(source.size) + 1000 * rank.me
    shmem.shmem_alltoalls(SHMEM_TEAM_WORLD, dest, source, dst, sst, count)
    expected = np.zeros(dest.size, np.int64)
    for pe in range(n):
        for i in range(count):
            expected[(pe * count + i) * dst] = 1000 * pe + (rank.me * count + i) * sst
    assert dest.tolist() == expected.tolist()
    shmem.shmem_barrier_all()


@on_ranks(3)
@pytest.mark.parametrize("name", INTEGERS + FLOATS)
@pytest.mark.parametrize("count", [1, 17, 20_000])
def test_reductions(rank: Rank, name: str, count: int) -> None:
    source, dest = symmetric(rank, "source", count, name), symmetric(rank, "dest", count, name)
    all_values = [values(pe, count, name) for pe in range(rank.size)]
    for op, combine in REDUCTIONS.items():
        if name in FLOATS and op in ("and", "or", "xor"):
            continue
        expected = all_values[0]
        for more in all_values[1:]:
            expected = combine(expected, more)
        for target in (dest, source):  # in place too
            source[...] = all_values[rank.me]
            shmem.shmem_barrier_all()
            getattr(shmem, f"shmem_{op}_reduce")(SHMEM_TEAM_WORLD, target, source, count)
            assert target.tobytes() == expected.astype(target.dtype).tobytes(), op
            shmem.shmem_barrier_all()


@pytest.mark.usefixtures("torch_here")
@on_ranks(2)
def test_torch_reductions_of_a_team(rank: Rank) -> None:
    import torch

    source = shmem.mori_shmem_create_tensor((6,), torch.bfloat16)
    dest = shmem.mori_shmem_create_tensor((6,), torch.bfloat16)
    team = SHMEM_TEAM_WORLD.split_strided(1, -1, 2)
    assert team is not None
    source.fill_(rank.me + 1)
    team.sum_reduce(dest, source, 6)
    assert dest.tolist() == [3.0] * 6
    team.broadcast(dest, source, 6, 0)
    assert dest.tolist() == [2.0] * 6, "its first member is PE 1"
    team.destroy()
    shmem.mori_shmem_free_tensor(dest)
    shmem.mori_shmem_free_tensor(source)


@on_ranks(2)
def test_what_is_refused_on_all(rank: Rank) -> None:
    source, dest = symmetric(rank, "source", 16, "float32"), symmetric(rank, "dest", 16, "float32")
    source[...] = 1
    team = SHMEM_TEAM_WORLD
    refused: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "PE 2 does not exist", lambda: team.broadcast(dest, source, 4, 2)),
        (ValueError, "PE -1 does not exist", lambda: team.broadcast(dest, source, 4, -1)),
        (ValueError, "not symmetric", lambda: team.broadcast(np.zeros(16, np.float32), source, 4, 0)),
        (ValueError, "not symmetric", lambda: team.fcollect(dest, np.zeros(16, np.float32), 4)),
        (ValueError, "do not fit into dest", lambda: team.fcollect(dest, source, 9)),
        (ValueError, "do not fit into source", lambda: team.alltoall(dest, source, 9)),
        (ValueError, "do not fit into dest", lambda: team.alltoalls(dest, source, 3, 1, 8)),
        (ValueError, "elements for each", lambda: team.fcollect(dest, source, 2**64 - 1)),
        (ValueError, "element type", lambda: team.sum_reduce(dest, source, 4, "int32")),
        (ValueError, "float32", lambda: team.and_reduce(dest, source, 4)),
        (ValueError, "complex64|type", lambda: team.min_reduce(dest.view("c8"), source.view("c8"), 4)),
        (ValueError, "apart|overlap", lambda: team.fcollect(dest, dest[4:], 4)),
        (ValueError, "apart|overlap", lambda: team.sum_reduce(dest, dest[4:], 8)),
    ]
    for kind, said, call in refused:
        with pytest.raises(kind, match=said):
            call()
        team.sync()
    assert not dest.any()
    team.sum_reduce(dest, source, 16)
    assert (dest == 2).all()
    shmem.shmem_barrier_all()


@on_ranks(3)
def test_different_arguments_are_an_error_on_all(rank: Rank) -> None:
    source, dest = symmetric(rank, "source", 64, "int32"), symmetric(rank, "dest", 64, "int32")
    with pytest.raises(shmem.MismatchError, match="PE"):
        SHMEM_TEAM_WORLD.fcollect(dest, source, 3 + (rank.me == 1))
    root_or_op = (0,) if rank.me == 2 else ()
    call = SHMEM_TEAM_WORLD.broadcast if rank.me == 2 else SHMEM_TEAM_WORLD.sum_reduce
    with pytest.raises(shmem.MismatchError, match="PE"):
        call(dest, source, 4, *root_or_op)
    assert not dest.any()
    SHMEM_TEAM_WORLD.sync()
