# SPDX-License-Identifier: MIT
"""The PEs of `mori bench shmem`, with symmetric memory and other memory on the host or on a GPU.

PE 0 moves bytes to and from PE 1; the other PEs take part in barriers.
"""

from __future__ import annotations

import os
import statistics
import time
import timeit
from collections.abc import Callable

from mori import _core, device, shmem

from .harness import MIB
from .memory import Pattern, Region, Span
from .process import Member
from .raw import driver

GRANULE = 4096
_SEED = 20_26
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
        self.own = Region(MIB)
        self.pattern = Pattern(_SEED, GRANULE, MIB // GRANULE)

    def join(self, unique_id: bytes) -> None:
        super().join(unique_id)
        self.symmetric = Span(shmem.shmem_malloc(MIB), MIB)
        self._flags, self._raised = shmem.shmem_calloc(_FLAG_BYTES, 1), 0
        self.symmetric.wipe()
        # A busy machine may place two spinning PEs on one core. Pin only this thread, and only now:
        # the native side has read how many cores it may use.
        cores = sorted(os.sched_getaffinity(0))
        if self.size <= len(cores):
            os.sched_setaffinity(0, {cores[self.me]})

    def _memory(self, which: str) -> Span:
        return self.own if which == "own" else self.symmetric

    def fill(self, which: str) -> None:
        self.pattern.fill(self._memory(which), ((at, at // GRANULE) for at in range(0, MIB, GRANULE)))

    def wipe(self, which: str) -> None:
        self._memory(which).wipe()

    def wrong(self, which: str, size: int) -> int:
        """Count the granules of the first `size` bytes that differ from the pattern."""
        memory = self._memory(which)
        if size % GRANULE:
            return int(memory.bytes(0, size) != self.pattern.expected(0, size))
        return len(self.pattern.wrong(memory, ((at, at // GRANULE) for at in range(0, size, GRANULE))))

    def word(self) -> int:
        """Return the word that atomics change."""
        return int.from_bytes(self.symmetric.bytes(0, 8), "little")

    def native(self, what: str, n: int, target: int, rounds: int, runs: int, entry: str = "BenchShmem") -> float:
        return float(_core.call(entry, what, self.symmetric.address, self.own.address, n, target, rounds, runs))

    def raw(self, what: str, n: int, target: int, rounds: int, runs: int) -> float:
        return self.native(what, n, target, rounds, runs, "BenchRaw")

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

    def python(self, what: str, n: int, target: int, rounds: int, runs: int) -> float:
        names = {**vars(shmem), "dest": self.symmetric.address, "own": self.own.address, "n": n}
        return min(timeit.Timer(_STATEMENTS[what], globals=names).repeat(runs, rounds)) / rounds * 1e9


class GPUPE(Member):
    """A PE whose symmetric memory is on a GPU. It uses `room` bytes there and `room` elsewhere."""

    def __init__(self, me: int, size: int, heap: int, numbers: list[int], room: int) -> None:
        self._gpu, self._room = numbers[me % len(numbers)], room
        super().__init__(me, size, heap, self._gpu)
        self.pattern = Pattern(_SEED, GRANULE, room // GRANULE)
        self._stage = Region(min(room, 64 * MIB))

    def join(self, unique_id: bytes) -> None:
        super().join(unique_id)
        self.own = device.DeviceMemory(self._room, self._gpu)
        self._busy = device.DeviceMemory(2 * _BUSY_BYTES, self._gpu)
        self.symmetric = shmem.shmem_malloc(self._room)
        self._words, self._signalled = shmem.shmem_calloc(_SIGNAL_WORDS, 1), 0
        self._stream = device.Stream(self._gpu)
        self._begin, self._end = device.Event(self._gpu), device.Event(self._gpu)
        self._copies = driver.Copies(self._gpu)

    def leave(self) -> None:
        self.own.close()
        self._busy.close()
        super().leave()

    def mapped(self) -> bool:
        """Return whether the symmetric memory of PE 1 has an address here."""
        return self._peer(1) != 0

    def _peer(self, pe: int) -> int:
        return int(shmem.shmem_ptr_p2p(self.symmetric, self.me, pe))

    # The bytes, which pass through a staging buffer.

    def _portions(self, which: str) -> list[tuple[int, int]]:
        """Return (first granule, address) of each part of the memory that fits into the buffer."""
        base = self.own.ptr if which == "own" else self.symmetric
        return [(first // GRANULE, base + first) for first in range(0, self._room, self._stage.size)]

    def fill(self, which: str) -> None:
        size = self._stage.size
        for first, address in self._portions(which):
            self.pattern.fill(self._stage, ((at, first + at // GRANULE) for at in range(0, size, GRANULE)))
            self._copy(address, self._stage.address, size)

    def wipe(self, which: str) -> None:
        self._stage.wipe()
        for _, address in self._portions(which):
            self._copy(address, self._stage.address, self._stage.size)

    def wrong(self, which: str, size: int) -> int:
        """Count the granules that differ from the pattern; of shorter pieces, the first bytes."""
        wrong, stage, expected = 0, self._stage, self.pattern.expected
        for first, address in self._portions(which):
            self._copy(stage.address, address, stage.size)
            places = range(0, stage.size, GRANULE)
            if size < GRANULE:
                wrong += sum(stage.bytes(at, size) != expected(first * GRANULE + at, size) for at in places)
            else:
                wrong += len(self.pattern.wrong(stage, ((at, first + at // GRANULE) for at in places)))
        return wrong

    def _copy(self, dst: int, src: int, size: int) -> None:
        device.copy(dst, src, size, self._stream)
        self._stream.wait(_WAIT_S)

    # The operations.

    def _pieces(self, size: int, rounds: int) -> list[int]:
        """Return the offsets of pieces that cover all memory in turn, at least a granule apart."""
        step = max(size, GRANULE)
        return [i * step % self._room for i in range(max(rounds, self._room // step))]

    def _call(self, what: str, size: int) -> Callable[[int], None]:
        mine, symmetric = self.own.ptr, self.symmetric
        if what == "put":
            return lambda at: shmem.shmem_putmem(symmetric + at, mine + at, size, 1)
        return lambda at: shmem.shmem_getmem(mine + at, symmetric + at, size, 1)

    def stream(self, what: str, size: int, rounds: int) -> float:
        """Put or get pieces in a row. Return the seconds of one."""
        pieces, call = self._pieces(size, rounds), self._call(what, size)
        begin = time.perf_counter()
        for at in pieces:
            call(at)
        shmem.shmem_quiet()
        return (time.perf_counter() - begin) / len(pieces)

    def latency(self, what: str, size: int, rounds: int) -> float:
        """Put or get one piece and quiet at a time. Return the median seconds."""
        spent, clock, call = [], time.perf_counter, self._call(what, size)
        for at in self._pieces(size, rounds):
            begin = clock()
            call(at)
            shmem.shmem_quiet()
            spent.append(clock() - begin)
        return statistics.median(spent)

    def raw_stream(self, what: str, size: int, rounds: int) -> float:
        """Copy between the same memories by the driver. Return the seconds of one copy."""
        moves = self._moves(what, size, rounds)
        return self._copies.seconds(moves) / len(moves)

    def raw_latency(self, what: str, size: int, rounds: int) -> float:
        """Copy and wait, one piece at a time. Return the median seconds."""
        return self._copies.latency_us(self._moves(what, size, rounds)) / 1e6

    def _moves(self, what: str, size: int, rounds: int) -> list[driver.Move]:
        to, source = (self._peer(1), self.own.ptr) if what == "put" else (self.own.ptr, self._peer(1))
        return [(to + at, source + at, size) for at in self._pieces(size, rounds)]

    def barriers(self, rounds: int, ahead: bool) -> float:
        """Run barriers on a stream in a row. Return the seconds of one, by events.

        With ahead the GPU has other work until all barriers are launched, so that none waits for calls.
        """
        half = self._busy.nbytes // 2
        for _ in range(rounds * _CALL_US // _BUSY_US + 1 if ahead else 0):
            device.copy(self._busy.ptr + half, self._busy.ptr, half, self._stream)
        shmem.shmem_barrier_on_stream(self._stream)  # all PEs begin at the same time
        self._begin.record(self._stream)
        for _ in range(rounds):
            shmem.shmem_barrier_on_stream(self._stream)
        self._end.record(self._stream)
        self._end.wait(_WAIT_S)
        return float(self._end.elapsed_ms(self._begin)) / 1e3 / rounds

    def signals(self, rounds: int) -> float:
        """Let kernels of PEs 0 and 1 put 8 bytes with a signal and answer: ns of one way."""
        if self.me > 1:
            return 0.0
        first, self._signalled = self._signalled, self._signalled + rounds + 1
        return float(_core.call("BenchSignal", self._gpu, self._words, first, rounds))

    def not_carried(self) -> int:
        """Copy to the next PE, with a barrier on the stream. Count the granules missing here."""
        device.copy(self._peer((self.me + 1) % self.size), self.own.ptr, self._room, self._stream)
        shmem.shmem_barrier_on_stream(self._stream)
        self._stream.wait(_WAIT_S)
        return self.wrong("symmetric", self._room)
