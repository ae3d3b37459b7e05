# SPDX-License-Identifier: MIT
"""The PEs of `mori bench shmem`, with symmetric memory and other memory on the host or on a GPU.

PE 0 moves bytes between its `own` blocks and the `symmetric` ones of PE 1; the other PEs take part in
barriers.
"""

from __future__ import annotations

import os
import time
import timeit

from mori import _core, device, shmem

from .harness import MIB, median_us
from .memory import Blocks, Region, Span
from .process import Member
from .raw import driver

GRANULE = 4096
_WAIT_S = 60.0
_FLAG_BYTES, _SIGNAL_WORDS = 16 * 64, 384
# Copies of _BUSY_BYTES within a GPU take _BUSY_US on an H200; a call takes less than _CALL_US.
_BUSY_BYTES, _BUSY_US, _CALL_US = 32 * MIB, 15, 15

# `dest` is the symmetric memory of PE 1, `own` this PE's memory.
_STATEMENTS = {
    "put": "shmem_putmem(dest, own, n, 1)",
    "put_quiet": "shmem_putmem(dest, own, n, 1); shmem_quiet()",
    "get": "shmem_getmem(own, dest, n, 1)",
    "fetch_add": "shmem_atomic_fetch_add(dest, 1, 1, 'uint64')",
    "barrier": "shmem_barrier_all()",
}


class PE(Member):
    """A PE on host memory. An operation has three forms: nanoseconds of a round, fastest run.

    `native` loops in the extension, `python` calls Python, `raw` is the yardstick in C.
    """

    def __init__(self, me: int, size: int, heap: int) -> None:
        super().__init__(me, size, heap)
        self._region = Region(MIB)
        self.own = Blocks(self._region.address, GRANULE, MIB // GRANULE)

    def join(self, unique_id: bytes) -> None:
        super().join(unique_id)
        self.symmetric = Blocks(shmem.shmem_malloc(MIB), GRANULE, MIB // GRANULE)
        self.symmetric.wipe()
        self._flags, self._raised = shmem.shmem_calloc(_FLAG_BYTES, 1), 0
        # A busy machine may place two spinning PEs on one core. Pin only this thread, and only now:
        # the native side has read how many cores it may use.
        cores = sorted(os.sched_getaffinity(0))
        if self.size <= len(cores):
            os.sched_setaffinity(0, {cores[self.me]})

    def word(self) -> int:
        """Return the word that atomics change."""
        return int.from_bytes(Span(self.symmetric.address, 8).bytes(0, 8), "little")

    def native(self, what: str, n: int, target: int, rounds: int, runs: int, entry: str = "BenchShmem") -> float:
        return float(_core.call(entry, what, self.symmetric.address, self.own.address, n, target, rounds, runs))

    def raw(self, what: str, n: int, target: int, rounds: int, runs: int) -> float:
        return self.native(what, n, target, rounds, runs, "BenchRaw")

    def python(self, what: str, n: int, target: int, rounds: int, runs: int) -> float:
        names = {**vars(shmem), "dest": self.symmetric.address, "own": self.own.address, "n": n}
        return min(timeit.Timer(_STATEMENTS[what], globals=names).repeat(runs, rounds)) / rounds * 1e9

    def at_once(self, form: str, what: str, n: int, rounds: int, runs: int) -> list[float]:
        """Run a form on PE 1's memory from all PEs at the same time. Return each run's figure."""
        figures = []
        for _ in range(runs):
            shmem.shmem_barrier_all()
            figures.append(getattr(self, form)(what, n, 1, rounds, 1))
        return figures

    def raw_barrier(self, rounds: int, runs: int) -> float:
        first, self._raised = self._raised + 1, self._raised + rounds * runs
        return float(_core.call("BenchRawBarrier", self._flags, first, rounds, runs))


class GPUPE(Member):
    """A PE whose symmetric memory is on a GPU. It uses `room` bytes there and `room` elsewhere."""

    def __init__(self, me: int, size: int, heap: int, numbers: list[int], room: int) -> None:
        self._gpu, self._room = numbers[me % len(numbers)], room
        super().__init__(me, size, heap, self._gpu)

    def join(self, unique_id: bytes) -> None:
        super().join(unique_id)
        stage, count = Region(min(self._room, 64 * MIB)), self._room // GRANULE
        self._memory = device.DeviceMemory(self._room, self._gpu)
        self._busy = device.DeviceMemory(2 * _BUSY_BYTES, self._gpu)
        self.own = Blocks(self._memory.ptr, GRANULE, count, stage)
        self.symmetric = Blocks(shmem.shmem_malloc(self._room), GRANULE, count, stage)
        self._words, self._signalled = shmem.shmem_calloc(_SIGNAL_WORDS, 1), 0
        self._copies = driver.Copies(self._gpu)

    def leave(self) -> None:
        self._memory.close()
        self._busy.close()
        super().leave()

    def _peer(self, pe: int) -> int:
        return int(shmem.shmem_ptr_p2p(self.symmetric.address, self.me, pe))

    def _pieces(self, size: int, rounds: int) -> list[int]:
        """Return the offsets of pieces that cover all memory in turn, at least a granule apart."""
        step = max(size, GRANULE)
        return [i * step % self._room for i in range(max(rounds, self._room // step))]

    def moves(self, what: str, size: int, rounds: int, alone: bool) -> float:
        """Put or get pieces, in a row or each with its quiet. Return the seconds of one, alone the median."""
        mine, symmetric, pieces = self.own.address, self.symmetric.address, self._pieces(size, rounds)

        def call(at: int) -> None:
            if what == "put":
                shmem.shmem_putmem(symmetric + at, mine + at, size, 1)
            else:
                shmem.shmem_getmem(mine + at, symmetric + at, size, 1)

        def call_and_wait() -> None:
            call(pieces.pop())
            shmem.shmem_quiet()

        if alone:
            return median_us(call_and_wait, len(pieces)) / 1e6
        begin = time.perf_counter()
        for at in pieces:
            call(at)
        shmem.shmem_quiet()
        return (time.perf_counter() - begin) / len(pieces)

    def copies(self, what: str, size: int, rounds: int, alone: bool) -> float:
        """Let the driver copy between the same memories. Return seconds like `moves`."""
        to, source = (self._peer(1), self.own.address)[:: 1 if what == "put" else -1]
        moves = [(to + at, source + at, size) for at in self._pieces(size, rounds)]
        return self._copies.latency_us(moves) / 1e6 if alone else self._copies.seconds(moves) / len(moves)

    def barriers(self, rounds: int, ahead: bool) -> float:
        """Run barriers on a stream in a row. Return the seconds of one, by events.

        With ahead the GPU has other work until all barriers are launched, so that none waits for calls.
        """
        stream, half = self._copies.on, self._busy.nbytes // 2
        for _ in range(rounds * _CALL_US // _BUSY_US + 1 if ahead else 0):
            device.copy(self._busy.ptr + half, self._busy.ptr, half, stream)
        shmem.shmem_barrier_on_stream(stream)  # all PEs begin at the same time

        def work() -> None:
            for _ in range(rounds):
                shmem.shmem_barrier_on_stream(stream)

        return self._copies.timed(work) / rounds

    def signals(self, rounds: int) -> float:
        """Let kernels of PEs 0 and 1 put 8 bytes with a signal and answer: ns of one way."""
        if self.me > 1:
            return 0.0
        first, self._signalled = self._signalled, self._signalled + rounds + 1
        return float(_core.call("BenchSignal", self._gpu, self._words, first, rounds))

    def not_carried(self) -> int:
        """Copy to the next PE, with a barrier on the stream. Count the granules missing here."""
        device.copy(self._peer((self.me + 1) % self.size), self.own.address, self._room, self._copies.on)
        shmem.shmem_barrier_on_stream(self._copies.on)
        self._copies.on.wait(_WAIT_S)
        return self.symmetric.wrong(self._room)
