# SPDX-License-Identifier: MIT
"""One side of a transfer: memory, an engine, and the yardsticks' means.

The measuring process holds one side; the other lives in a spawned process behind a Remote.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mori import device
from mori.io import (
    BackendType,
    EngineDesc,
    IOEngine,
    IOEngineConfig,
    IOEngineSession,
    MemoryDesc,
    MemoryLocationType,
    RdmaBackendConfig,
)

from .harness import MIB
from .memory import Pattern, Region, resident_bytes
from .raw import process_vm, tcp

GRANULE = 4096
_SEED = 20_26
_STAGE = 64 * MIB


@contextlib.contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Set environment variables inside; None leaves one as it is."""
    wanted = {name: value for name, value in values.items() if value is not None}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class Card(NamedTuple):
    """What the other process needs: packed descriptors; process and addresses for the yardstick."""

    engine: bytes
    memories: list[bytes]
    pid: int
    addresses: list[int]


class Endpoint:
    """An engine with its registered memories, and the same memories for the yardsticks."""

    def __init__(self) -> None:
        process_vm.allow_peers()
        self.engine: IOEngine | None = None
        self.regions: list[Region] = []
        self.copies: list[process_vm.Copies] = []
        self.tcp = tcp.Streams(lambda: [region.view for region in self.regions])

    def register(self, engine: IOEngine, spans: Sequence[tuple[int, int]], gpu: int = -1) -> Card:
        """Register memories, each an address and a size, with an engine of this side."""
        self.engine, where = engine, MemoryLocationType.CPU if gpu < 0 else MemoryLocationType.GPU
        self._memories = [engine.register_memory(*span, gpu, where) for span in spans]
        packed = [memory.pack() for memory in self._memories]
        return Card(engine.get_engine_desc().pack(), packed, os.getpid(), [span[0] for span in spans])

    def connect(self, other: Card) -> None:
        assert self.engine is not None
        self.engine.register_remote_engine(EngineDesc.unpack(other.engine))
        self._other = other

    def sessions(self) -> list[IOEngineSession]:
        """Open a session for each memory and the other side's memory of the same number."""
        assert self.engine is not None
        pairs = zip(self._memories, map(MemoryDesc.unpack, self._other.memories), strict=True)
        made = [session for pair in pairs if (session := self.engine.create_session(*pair))]
        if len(made) < len(self._memories):
            raise RuntimeError(f"no path leads to the other side: {self.engine.describe()}")
        return made

    def prepare_copies(
        self, here: Sequence[int], there: Sequence[int], size: int, per_call: int
    ) -> None:
        """Make the yardstick that copies blocks between the same memories, at these offsets."""
        pid, bases = self._other.pid, zip(self._addresses(), self._other.addresses, strict=True)
        self.copies = [
            process_vm.Copies(pid, [own + h for h in here], [other + t for t in there], size, per_call)
            for own, other in bases
        ]

    def _addresses(self) -> list[int]:
        return [region.address for region in self.regions]

    def copy_seconds(self, way: str, rounds: int) -> float:
        """Return the duration of one round of "read" or "write" of all blocks."""
        return sum(copies.seconds(way, rounds) for copies in self.copies)


class Usage(NamedTuple):
    """What a process holds. cpu_s is the processor time of all its threads so far."""

    rss: int
    cpu_s: float
    threads: int
    fds: int


class Side(Endpoint):
    """Blocks on GPU `gpu` or in host memory. Block i of the source holds granule i of a pattern."""

    def __init__(self, gpu: int = -1) -> None:
        super().__init__()
        self.regions = [Region(_STAGE)]  # the host's blocks, or a staging buffer for a GPU's
        self.device: device.DeviceMemory | None = None
        self._gpu = gpu

    def make(self, place: str, block: int, count: int) -> None:
        """Replace the blocks by `count` of `block` bytes in memory of the GPU or of the host."""
        self.drop()
        self._block, self._count, self._pattern = block, count, Pattern(_SEED, block, count)
        if place == "gpu":
            self.device = device.DeviceMemory(block * count, self._gpu)
        elif self.regions[0].size < block * count:
            self.regions = [Region(block * count)]

    @property
    def address(self) -> int:
        return self.device.ptr if self.device else self.regions[0].address

    def drop(self) -> None:
        """Close the engine and free the GPU's blocks."""
        for held in (self.engine, self.device):
            if held is not None:
                held.close()
        self.engine = self.device = None

    def open(self, backend: str, path: str, notifications: bool) -> Card:
        """Make an engine with one backend and register the blocks."""
        local = backend == "XGMI"
        config = IOEngineConfig("" if local else "127.0.0.1", 0)
        self.engine = IOEngine(f"bench-{path}-{os.getpid()}", config)
        options = None if local else RdmaBackendConfig(enable_notification=notifications)
        with environment(FABRIC_PROVIDER="verbs,tcp" if path == "verbs" else None):
            self.engine.create_backend(BackendType[backend], options)
        span = self.address, self._block * self._count
        return self.register(self.engine, [span], self._gpu if self.device else -1)

    # The bytes, which on a GPU pass through the staging buffer.

    def _portions(self) -> Iterator[range]:
        """Yield ranges of blocks that fit into the buffer."""
        step, count = _STAGE // self._block, self._count
        return (range(first, min(first + step, count)) for first in range(0, count, step))

    def fill(self) -> None:
        [region], size = self.regions, self._block
        for part in self._portions() if self.device else [range(self._count)]:
            self._pattern.fill(region, (((i - part.start) * size, i) for i in part))
            if self.device:
                self.device.write(region.view[: len(part) * size], part.start * size)

    def wipe(self, offsets: Sequence[int], size: int) -> None:
        """Zero the blocks at the offsets; on a GPU, all blocks."""
        if self.device:
            self.device.fill(0)
            return
        for offset in offsets:
            self.regions[0].wipe(offset, size)

    def wrong(self, here: Sequence[int], there: Sequence[int], size: int) -> int:
        """Count the blocks at offsets `here` that differ from the other side's blocks at `there`.

        Only the first `size` bytes of a host block are compared. On a GPU `here` names every block.
        """
        [region], block = self.regions, self._block
        source, wrong = dict(zip(here, there, strict=True)), 0
        if self.device is None and size < block:
            expected = self._pattern.expected
            return sum(region.bytes(h, size) != expected(t, size) for h, t in source.items())
        if self.device is None:
            return len(self._pattern.wrong(region, ((h, t // block) for h, t in source.items())))
        for part in self._portions():
            size, start = len(part) * block, part.start * block
            region.view[:size] = self.device.read(size, start)
            pairs = ((at, source[start + at] // block) for at in range(0, size, block))
            wrong += len(self._pattern.wrong(region, pairs))
        return wrong

    def usage(self) -> Usage:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        threads, fds = (len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd"))
        return Usage(resident_bytes(), spent.ru_utime + spent.ru_stime, threads, fds)
