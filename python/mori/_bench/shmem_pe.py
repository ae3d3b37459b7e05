# SPDX-License-Identifier: MIT
"""A PE of `mori bench shmem`: symmetric memory, memory of its own, and each operation in three forms.

`native` loops inside of the extension, `python` calls the Python function each time, `raw` is the instruction or memcpy
on the mapping, in C. All return the nanoseconds of a round in the fastest of some runs.
"""

from __future__ import annotations

import os
import timeit

from .cases import MIB
from .group import Member
from .memory import Pattern, Region, Span

GRANULE = 4096
_FLAGS = 16 * 64

# With `dest` the symmetric memory of PE 1 and `own` this PE's.
_STATEMENTS = {
    "put": "putmem(dest, own, n, 1)",
    "put_quiet": "putmem(dest, own, n, 1); quiet()",
    "get": "getmem(own, dest, n, 1)",
    "fetch_add": "fetch_add(dest, 1, 1, 'uint64')",
    "barrier": "barrier_all()",
}


class PE(Member):
    """What the benchmark asks of PEs. PE 0 measures; the others wait for it, but for barriers."""

    def __init__(self, me: int, size: int, heap: int) -> None:
        super().__init__(me, size, heap)
        self.own = Region(MIB)
        self.pattern = Pattern(20_26, GRANULE, MIB // GRANULE)

    def join(self, unique_id: bytes) -> None:
        from mori import shmem

        super().join(unique_id)
        self.symmetric = Span(shmem.shmem_malloc(MIB), MIB)
        self._flags = shmem.shmem_calloc(_FLAGS, 1)
        self._raised = 0
        self.symmetric.wipe()
        self._settle()

    def _settle(self) -> None:
        """Stay on a core of its own: a busy machine may put two that spin on one, and leave the other idle.

        Only this thread, and only now: the native side has found out how many cores it may use.
        """
        cores = sorted(os.sched_getaffinity(0))
        if self.size <= len(cores):
            os.sched_setaffinity(0, {cores[self.me]})

    # The bytes.

    def _memory(self, which: str) -> Span:
        return self.own if which == "own" else self.symmetric

    def fill(self, which: str) -> None:
        self.pattern.fill(self._memory(which), ((at, at // GRANULE) for at in range(0, MIB, GRANULE)))

    def wipe(self, which: str) -> None:
        self._memory(which).wipe()

    def wrong(self, which: str, size: int) -> int:
        """How many blocks of the first `size` bytes differ from the pattern."""
        memory = self._memory(which)
        if size % GRANULE:
            return int(memory.bytes(0, size) != self.pattern.expected(0, size))
        return len(self.pattern.wrong(memory, ((at, at // GRANULE) for at in range(0, size, GRANULE))))

    def word(self) -> int:
        """The word that atomics change."""
        return int.from_bytes(self.symmetric.bytes(0, 8), "little")

    # The operations.

    def native(self, what: str, n: int, target: int, rounds: int, runs: int) -> float:
        from mori import _core

        args = (self.symmetric.address, self.own.address, n, target, rounds, runs)
        return float(_core.call("BenchShmem", what, *args))

    def raw(self, what: str, n: int, target: int, rounds: int, runs: int) -> float:
        from mori import _core

        args = (self.symmetric.address, self.own.address, n, target, rounds, runs)
        return float(_core.call("BenchRaw", what, *args))

    def at_once(self, form: str, what: str, n: int, rounds: int, runs: int) -> list[float]:
        """`native` or `raw` of PE 1's memory, each run begun by all PEs at once: the figures of the runs."""
        from mori import shmem

        figures = []
        for _ in range(runs):
            shmem.shmem_barrier_all()
            figures.append(self.raw(what, n, 1, rounds, 1) if form == "raw" else self.native(what, n, 1, rounds, 1))
        return figures

    def raw_barrier(self, rounds: int, runs: int) -> float:
        from mori import _core

        first, self._raised = self._raised + 1, self._raised + rounds * runs
        return float(_core.call("BenchRawBarrier", self._flags, first, rounds, runs))

    def python(self, what: str, n: int, rounds: int, runs: int) -> float:
        from mori import shmem

        names = {
            "putmem": shmem.shmem_putmem,
            "getmem": shmem.shmem_getmem,
            "quiet": shmem.shmem_quiet,
            "fetch_add": shmem.shmem_atomic_fetch_add,
            "barrier_all": shmem.shmem_barrier_all,
            "dest": self.symmetric.address,
            "own": self.own.address,
            "n": n,
        }
        return min(timeit.Timer(_STATEMENTS[what], globals=names).repeat(runs, rounds)) / rounds * 1e9
