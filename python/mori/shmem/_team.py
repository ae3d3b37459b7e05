# SPDX-License-Identifier: MIT
"""Teams: subsets of the PEs, numbered anew from 0, and what their members do together.

What is collective all members call, in the same order and with the same arguments. If the arguments differ, or those
of one member are wrong, all get an exception and no memory is touched; the team can be used further. After any other
exception in such a call (a dead PE, a time-out, Ctrl-C) it cannot.
"""

from __future__ import annotations

import operator
from typing import Any

from . import _native
from ._rma import Memory

SHMEM_TEAM_INVALID = None
"""What a split returns to a PE that is not in the new team."""

_SYNC, _BARRIER, _BROADCAST, _FCOLLECT, _COLLECT, _ALLTOALL, _ALLTOALLS, _REDUCE = range(8)
_AND, _OR, _XOR, _MIN, _MAX, _SUM, _PROD = range(1, 8)


class Team:
    """A subset of the PEs as one of its members sees it. Splits make them; the first are SHMEM_TEAM_WORLD and _SHARED.

    ``dest`` and ``source`` are symmetric arrays, tensors or addresses with a ``dtype``, the same on all members; sizes
    count elements. A result is complete on this PE when the call returns.
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
        """Return how many members there are."""
        npes: int = _native.call("ShmemTeamNPEs", self._handle)
        return npes

    def translate_pe(self, pe: int, other: Team) -> int:
        """Return the number in ``other`` of the member ``pe``, -1 if it is not in it."""
        translated: int = _native.call("ShmemTeamTranslatePE", self._handle, operator.index(pe), other._handle)
        return translated

    def split_strided(self, start: int, stride: int, size: int) -> Team | None:
        """Make a team of ``size`` members, from ``start``, each ``stride`` behind the last. Collective.

        Returns:
            The new team; None (SHMEM_TEAM_INVALID) on members that are not in it.
        """
        start, stride, size = operator.index(start), operator.index(stride), operator.index(size)
        handle = _native.collective("ShmemTeamSplitStrided", self._handle, start, stride, size)
        return Team(handle, f"{self._name}[{start}::{stride}][:{size}]") if handle else None

    def split_2d(self, xrange: int) -> tuple[Team, Team]:
        """Lay the members out in rows of ``xrange`` and return the teams of this one's row and column. Collective."""
        pair = _native.collective("ShmemTeamSplit2D", self._handle, operator.index(xrange))
        row = _native.call("ShmemTeamAxis", pair, 0)
        column = _native.call("ShmemTeamAxis", pair, 1)
        return Team(row, f"{self._name}.row"), Team(column, f"{self._name}.column")

    def destroy(self) -> None:
        """End the team. Collective. The two first ones cannot end."""
        _native.collective("ShmemTeamDestroy", self._handle)

    def sync(self) -> None:
        """Wait until all members have come here. Collective. It completes no transfers."""
        _native.hot.shmem_team(_SYNC, self._handle, None, None, 0, None, 0, 0)

    def barrier(self) -> None:
        """Wait until all members have come here, and what they put before is visible. Collective."""
        _native.hot.shmem_team(_BARRIER, self._handle, None, None, 0, None, 0, 0)

    def broadcast(self, dest: Memory, source: Memory, nelems: int, root: int, dtype: Any = None) -> None:
        """Copy ``source`` of member ``root`` to ``dest`` of all members, root too. Collective."""
        _native.hot.shmem_team(_BROADCAST, self._handle, dest, source, nelems, dtype, root, 0)

    def fcollect(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Put the ``nelems`` elements of each member one behind the other into ``dest`` of all. Collective."""
        _native.hot.shmem_team(_FCOLLECT, self._handle, dest, source, nelems, dtype, 0, 0)

    def collect(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Do a :meth:`fcollect` where each member has its own ``nelems``. ``dest`` must hold them all. Collective."""
        _native.hot.shmem_team(_COLLECT, self._handle, dest, source, nelems, dtype, 0, 0)

    def alltoall(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Send the i-th ``nelems`` elements to member i; it has them in the order of the senders. Collective."""
        _native.hot.shmem_team(_ALLTOALL, self._handle, dest, source, nelems, dtype, 0, 0)

    def alltoalls(self, dest: Memory, source: Memory, dst: int, sst: int, nelems: int, dtype: Any = None) -> None:
        """Do an :meth:`alltoall` of elements that lie ``sst`` apart, to where they lie ``dst`` apart. Collective."""
        _native.hot.shmem_team(_ALLTOALLS, self._handle, dest, source, nelems, dtype, dst, sst)

    def and_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Combine the members' elements bit by bit with and. Collective, as are all reductions; integers only."""
        self._reduce(_AND, dest, source, nelems, dtype)

    def or_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Combine the members' elements bit by bit with or."""
        self._reduce(_OR, dest, source, nelems, dtype)

    def xor_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Combine the members' elements bit by bit with exclusive or."""
        self._reduce(_XOR, dest, source, nelems, dtype)

    def min_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Take the least of the members' elements, one by one. A NaN wins."""
        self._reduce(_MIN, dest, source, nelems, dtype)

    def max_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Take the greatest of the members' elements, one by one. A NaN wins."""
        self._reduce(_MAX, dest, source, nelems, dtype)

    def sum_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Add the members' elements, one by one, in the order of the members' numbers."""
        self._reduce(_SUM, dest, source, nelems, dtype)

    def prod_reduce(self, dest: Memory, source: Memory, nelems: int, dtype: Any = None) -> None:
        """Multiply the members' elements, one by one, in the order of the members' numbers."""
        self._reduce(_PROD, dest, source, nelems, dtype)

    def _reduce(self, op: int, dest: Memory, source: Memory, nelems: int, dtype: Any) -> None:
        _native.hot.shmem_team(_REDUCE, self._handle, dest, source, nelems, dtype, op, 0)


SHMEM_TEAM_WORLD = Team(1, "world")
SHMEM_TEAM_SHARED = Team(2, "shared")
