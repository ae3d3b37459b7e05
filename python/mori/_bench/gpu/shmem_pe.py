# SPDX-License-Identifier: MIT
"""A PE of `mori bench shmem --device gpu`: symmetric memory on its GPU, other memory of that GPU, and raw copies."""

from __future__ import annotations

import os
import statistics
import time

from mori import _core, device

from ..cases import MIB
from ..group import Member
from ..memory import Pattern, Region
from .copies import Copies

GRANULE = 4096
WAIT_S = 60.0
_WORDS = 384  # of the kernel that signals
# What keeps a GPU busy: copies of so much within it take this long on an H200; a call takes less than this.
BUSY_BYTES, BUSY_US, CALL_US = 32 * MIB, 15, 15


class GPUPE(Member):
    """What the benchmark asks of PEs. PE 0 moves bytes to and from PE 1; all meet."""

    def __init__(self, me: int, size: int, heap: int, gpus: list[int], room: int) -> None:
        super().__init__(me, size, heap)
        self._gpu = gpus[me % len(gpus)]
        self._room = room
        os.environ.update(MORI_SHMEM_DEVICE="gpu", MORI_SHMEM_GPU=str(self._gpu))
        self.pattern = Pattern(20_26, GRANULE, room // GRANULE)
        self._stage = Region(min(room, 64 * MIB))

    def join(self, unique_id: bytes) -> None:
        from mori import shmem

        super().join(unique_id)
        self.own = device.DeviceMemory(self._room, self._gpu)
        self._busy = device.DeviceMemory(2 * BUSY_BYTES, self._gpu)
        self.symmetric = shmem.shmem_malloc(self._room)
        self._words, self._signalled = shmem.shmem_calloc(_WORDS, 1), 0
        self._stream = device.Stream(self._gpu)
        self._begin, self._end = device.Event(self._gpu), device.Event(self._gpu)
        self._copies = Copies(self._gpu)

    def leave(self) -> None:
        self.own.close()
        self._busy.close()
        super().leave()

    def mapped(self) -> bool:
        """Whether the symmetric memory of PE 1 has an address here."""
        return self._peer() != 0

    def _peer(self) -> int:
        from mori import shmem

        return int(shmem.shmem_ptr_p2p(self.symmetric, self.me, 1))

    # The bytes.

    def _address(self, which: str) -> int:
        return self.own.ptr if which == "own" else self.symmetric

    def fill(self, which: str) -> None:
        size = self._stage.size
        for first in range(0, self._room, size):
            self.pattern.fill(self._stage, ((at, (first + at) // GRANULE) for at in range(0, size, GRANULE)))
            self._copy(self._address(which) + first, self._stage.address, size)

    def wipe(self, which: str) -> None:
        self._stage.wipe()
        for first in range(0, self._room, self._stage.size):
            self._copy(self._address(which) + first, self._stage.address, self._stage.size)

    def wrong(self, which: str, size: int) -> int:
        """How many granules differ; of pieces that are shorter than a granule, only what they reach of each."""
        wrong, stage = 0, self._stage.size
        for first in range(0, self._room, stage):
            self._copy(self._stage.address, self._address(which) + first, stage)
            if size < GRANULE:
                places = range(0, stage, GRANULE)
                wrong += sum(self._stage.bytes(at, size) != self.pattern.expected(first + at, size) for at in places)
            else:
                pairs = ((at, (first + at) // GRANULE) for at in range(0, stage, GRANULE))
                wrong += len(self.pattern.wrong(self._stage, pairs))
        return wrong

    def _copy(self, dst: int, src: int, size: int) -> None:
        device.copy(dst, src, size, self._stream)
        self._stream.wait(WAIT_S)

    # The operations.

    def _pieces(self, size: int, rounds: int) -> list[int]:
        """Offsets of pieces, in turn over all memory; at least a block apart."""
        step = max(size, GRANULE)
        return [i * step % self._room for i in range(max(rounds, self._room // step))]

    def stream(self, what: str, size: int, rounds: int) -> float:
        """Puts or gets of other pieces one after the other: seconds of one."""
        from mori import shmem

        pieces = self._pieces(size, rounds)
        mine, begin = self.own.ptr, time.perf_counter()
        for at in pieces:
            if what == "put":
                shmem.shmem_putmem(self.symmetric + at, mine + at, size, 1)
            else:
                shmem.shmem_getmem(mine + at, self.symmetric + at, size, 1)
        shmem.shmem_quiet()
        return (time.perf_counter() - begin) / len(pieces)

    def latency(self, what: str, size: int, rounds: int) -> float:
        """One put or get and quiet at a time: seconds, the median."""
        from mori import shmem

        mine, spent, clock = self.own.ptr, [], time.perf_counter
        for at in self._pieces(size, rounds):
            begin = clock()
            if what == "put":
                shmem.shmem_putmem(self.symmetric + at, mine + at, size, 1)
            else:
                shmem.shmem_getmem(mine + at, self.symmetric + at, size, 1)
            shmem.shmem_quiet()
            spent.append(clock() - begin)
        return statistics.median(spent)

    def raw_stream(self, what: str, size: int, rounds: int) -> float:
        """The driver's copies between the same memories: seconds of one, by events."""
        moves = self._moves(what, size, rounds)
        return self._copies.seconds(moves) / len(moves)

    def raw_latency(self, what: str, size: int, rounds: int) -> float:
        """A copy and the wait for it, at a time."""
        return self._copies.latency_us(self._moves(what, size, rounds)) / 1e6

    def _moves(self, what: str, size: int, rounds: int) -> list[tuple[int, int, int]]:
        mine, peer = self.own.ptr, self._peer()
        pieces = self._pieces(size, rounds)
        if what == "put":
            return [(peer + at, mine + at, size) for at in pieces]
        return [(mine + at, peer + at, size) for at in pieces]

    def barriers(self, rounds: int, ahead: bool) -> float:
        """Barriers on a stream in a row: seconds of one, by events.

        With ahead the GPU has other work until all are launched, so that none waits for calls.
        """
        from mori import shmem

        half = self._busy.nbytes // 2
        for _ in range(rounds * CALL_US // BUSY_US + 1 if ahead else 0):
            device.copy(self._busy.ptr + half, self._busy.ptr, half, self._stream)
        shmem.shmem_barrier_on_stream(self._stream)  # so that none waits inside for others to begin
        self._begin.record(self._stream)
        for _ in range(rounds):
            shmem.shmem_barrier_on_stream(self._stream)
        self._end.record(self._stream)
        self._end.wait(WAIT_S)
        return float(self._end.elapsed_ms(self._begin)) / 1e3 / rounds

    def signals(self, rounds: int) -> float:
        """Kernels of PEs 0 and 1 put 8 bytes with a signal and answer, looking at the bytes: nanoseconds of one way."""
        if self.me > 1:
            return 0.0
        first, self._signalled = self._signalled, self._signalled + rounds + 1
        return float(_core.call("BenchSignal", self._gpu, self._words, first, rounds))

    def carried(self) -> int:
        """How many blocks a barrier on the stream does not carry from each PE to the next, no host in between."""
        from mori import shmem

        after = (self.me + 1) % self.size
        peer = shmem.shmem_ptr_p2p(self.symmetric, self.me, after)
        device.copy(peer, self.own.ptr, self._room, self._stream)
        shmem.shmem_barrier_on_stream(self._stream)
        self._stream.wait(WAIT_S)
        return self.wrong("symmetric", self._room)
