# SPDX-License-Identifier: MIT
"""Teams: subsets of the PEs, with their own numbers from 0, and their collective operations.

All members call a collective operation, in the same order and with the same arguments. If the
arguments differ, or one member's are invalid, all members get an exception and no memory is
changed; the team stays usable. After any other exception in a collective (a dead PE, a timeout,
Ctrl-C) the team is unusable.
"""

from __future__ import annotations

import operator
from typing import Any

from . import _native
from ._rma import Memory

SHMEM_TEAM_INVALID = None
"""The result of a split on a PE that is not in the new team."""

_SYNC, _BARRIER, _BROADCAST, _FCOLLECT, _COLLECT, _ALLTOALL, _ALLTOALLS, _REDUCE = range(8)
_AND, _OR, _XOR, _MIN, _MAX, _SUM, _PROD = range(1, 8)


class Team:
    """A subset of the PEs, as one of its members sees it.

    SHMEM_TEAM_WORLD and SHMEM_TEAM_SHARED always exist; splits make others. ``dest`` and ``source``
    are symmetric arrays, tensors or addresses with a ``dtype``, the same on all members. Sizes are
    in elements. The result is complete on this PE when the call returns.
    """

    def __init__(self, handle: int, name: str) -> None:
        self._handle = handle
        self._name = name

    def __repr__(self) -> str:
        return f"<Team {self._name}>"

    def my_pe(self) -> int:
        """Return this process's number in the team."""
        pe: int = _native.call("ShmemTeamMyPE", self._handle)
        return pe

    def n_pes(self) -> int:
        """Return the number of members."""
        npes: int = _native.call("ShmemTeamNPEs", self._handle)
        return npes

    def translate_pe(self, pe: int, other: Team) -> int:
        """Return member ``pe``'s number in the team ``other``; -1 if it is not in it."""
        translated: int = _native.call("ShmemTeamTranslatePE", self._handle, operator.index(pe), other._handle)
        return translated

    def split_strided(self, start: int, stride: int, size: int) -> Team | None:
        """Make a team of ``size`` members: ``start``, ``start + stride``, and so on. Collective.

        Returns:
            The new team; None (SHMEM_TEAM_INVALID) on members that are not in it.
        """
        start, stride, size = operator.index(start), operator.index(stride), operator.index(size)
        handle = _native.collective("ShmemTeamSplitStrided", self._handle, start, stride, size)
        return Team(handle, f"{self._name}[{start}::{stride}][:{size}]") if handle else None

    def split_2d(self, xrange: int) -> tuple[Team, Team]:
        """Arrange the members in rows of ``xrange``; return the teams of this PE's row and column.

        Collective.
        """
        pair = _native.collective("ShmemTeamSplit2D", self._handle, operator.index(xrange))
        row = _native.call("ShmemTeamAxis", pair, 0)
        column = _native.call("ShmemTeamAxis", pair, 1)
        return Team(row, f"{self._name}.row"), Team(column, f"{self._name}.column")

    def destroy(self) -> None:
        """Destroy the team. Collective. The two predefined teams cannot be destroyed."""
        _native.collective("ShmemTeamDestroy", self._handle)

    def sync(self) -> None:
        """Wait until all members have called this. Collective. It completes no transfers."""
        _native.hot.shmem_team(_SYNC, self._handle, None, None, 0, None, 0, 0)

    def barrier(self) -> None:
        """Wait until all members have called this and their puts are visible. Collective."""
        _native.hot.shmem_team(_BARRIER, self._handle, None, None, 0, None, 0, 0)

    def broadcast(self, dest: Memory, source: Memory, nelems: int, root: int, dtype: Any = None) -> None:
        """Copy ``source`` of member ``root`` to ``dest`` of all, including root. Collective."""
        _native.hot.shmem_team(_BROADCAST, self._handle, dest, source, nelems, dtype, root, 0)

    def fcollect(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Concatenate ``nelems`` elements of each member into ``dest`` of all. Collective."""
        _native.hot.shmem_team(_FCOLLECT, self._handle, dest, source, nelems, dtype, 0, 0)

    def collect(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Concatenate like :meth:`fcollect`, with each member's own ``nelems``. Collective.

        ``dest`` must have room for all of them.
        """
        _native.hot.shmem_team(_COLLECT, self._handle, dest, source, nelems, dtype, 0, 0)

    def alltoall(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Send the i-th block of ``nelems`` elements to member i. Collective.

        ``dest`` has the received blocks in the order of the senders.
        """
        _native.hot.shmem_team(_ALLTOALL, self._handle, dest, source, nelems, dtype, 0, 0)

    def alltoalls(self, dest: Memory, source: Memory, dst: int, sst: int, nelems: int, dtype: Any = None) -> None:
        """Do an :meth:`alltoall` with strides ``sst`` in ``source``, ``dst`` in ``dest``."""
        _native.hot.shmem_team(_ALLTOALLS, self._handle, dest, source, nelems, dtype, dst, sst)

    def and_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Compute the bitwise AND over the members. Integers only. Reductions are collective."""
        self._reduce(_AND, dest, source, nelems, dtype)

    def or_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Compute the bitwise OR over the members. Integers only."""
        self._reduce(_OR, dest, source, nelems, dtype)

    def xor_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Compute the bitwise XOR over the members. Integers only."""
        self._reduce(_XOR, dest, source, nelems, dtype)

    def min_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Compute the elementwise minimum over the members. NaN propagates."""
        self._reduce(_MIN, dest, source, nelems, dtype)

    def max_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Compute the elementwise maximum over the members. NaN propagates."""
        self._reduce(_MAX, dest, source, nelems, dtype)

    def sum_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Compute the elementwise sum over the members, in the order of their numbers."""
        self._reduce(_SUM, dest, source, nelems, dtype)

    def prod_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Compute the elementwise product over the members, in the order of their numbers."""
        self._reduce(_PROD, dest, source, nelems, dtype)

    def _reduce(self, op: int, dest: Memory, source: Memory, nelems: int, dtype: Any) -> None:
        _native.hot.shmem_team(_REDUCE, self._handle, dest, source, nelems, dtype, op, 0)


SHMEM_TEAM_WORLD = Team(1, "world")
SHMEM_TEAM_SHARED = Team(2, "shared")
