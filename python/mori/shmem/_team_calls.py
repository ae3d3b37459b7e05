# SPDX-License-Identifier: MIT
"""OpenSHMEM's functions on teams. Each calls the method of that name of :class:`Team`."""

from __future__ import annotations

from typing import Any

from ._rma import Memory
from ._team import Team


def shmem_team_my_pe(team: Team | None) -> int:
    """Return this process's number in the team, -1 if that is SHMEM_TEAM_INVALID."""
    return -1 if team is None else team.my_pe()


def shmem_team_n_pes(team: Team | None) -> int:
    """Return the number of members of the team; -1 if it is SHMEM_TEAM_INVALID."""
    return -1 if team is None else team.n_pes()


def shmem_team_translate_pe(src_team: Team | None, src_pe: int, dest_team: Team | None) -> int:
    """Return the number in ``dest_team`` of member ``src_pe`` of ``src_team``, or -1."""
    return -1 if src_team is None or dest_team is None else src_team.translate_pe(src_pe, dest_team)


def shmem_team_split_strided(parent: Team, start: int, stride: int, size: int) -> Team | None:
    """Make a team of some of the parent's members; None for the others. See :meth:`Team.split_strided`."""
    return parent.split_strided(start, stride, size)


def shmem_team_split_2d(parent: Team, xrange: int) -> tuple[Team, Team]:
    """Make teams of the rows and columns of the parent. See :meth:`Team.split_2d`."""
    return parent.split_2d(xrange)


def shmem_team_destroy(team: Team | None) -> None:
    """Destroy a team. See :meth:`Team.destroy`."""
    if team is not None:
        team.destroy()


def shmem_team_sync(team: Team) -> None:
    """Wait until all members have called this. See :meth:`Team.sync`."""
    team.sync()


def shmem_broadcast(team: Team, dest: Memory, source: Memory, nelems: int, pe_root: int, dtype: Any = None) -> None:
    """Copy ``source`` of the root to ``dest`` of all. See :meth:`Team.broadcast`."""
    team.broadcast(dest, source, nelems, pe_root, dtype)


def shmem_fcollect(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Concatenate all members' elements. See :meth:`Team.fcollect`."""
    team.fcollect(dest, source, nelems, dtype)


def shmem_collect(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Concatenate different numbers of elements of all members. See :meth:`Team.collect`."""
    team.collect(dest, source, nelems, dtype)


def shmem_alltoall(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Send a block to each member and get one from each. See :meth:`Team.alltoall`."""
    team.alltoall(dest, source, nelems, dtype)


def shmem_alltoalls(
    team: Team, dest: Memory, source: Memory, dst: int, sst: int, nelems: int, dtype: Any = None
) -> None:
    """Exchange strided blocks between all members. See :meth:`Team.alltoalls`."""
    team.alltoalls(dest, source, dst, sst, nelems, dtype)


def shmem_and_reduce(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Compute the bitwise AND. See :meth:`Team.and_reduce`."""
    team.and_reduce(dest, source, nelems, dtype)


def shmem_or_reduce(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Compute the bitwise OR. See :meth:`Team.or_reduce`."""
    team.or_reduce(dest, source, nelems, dtype)


def shmem_xor_reduce(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Compute the bitwise XOR. See :meth:`Team.xor_reduce`."""
    team.xor_reduce(dest, source, nelems, dtype)


def shmem_min_reduce(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Compute the elementwise minimum. See :meth:`Team.min_reduce`."""
    team.min_reduce(dest, source, nelems, dtype)


def shmem_max_reduce(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Compute the elementwise maximum. See :meth:`Team.max_reduce`."""
    team.max_reduce(dest, source, nelems, dtype)


def shmem_sum_reduce(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Compute the elementwise sum. See :meth:`Team.sum_reduce`."""
    team.sum_reduce(dest, source, nelems, dtype)


def shmem_prod_reduce(team: Team, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
    """Compute the elementwise product. See :meth:`Team.prod_reduce`."""
    team.prod_reduce(dest, source, nelems, dtype)
