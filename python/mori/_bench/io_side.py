# SPDX-License-Identifier: MIT
"""One side of a transfer: memory, an engine, and the yardsticks' means.

The measuring process holds one side; the other lives in a spawned process behind a Remote.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from mori import device
from mori.cpp import TransferStatus
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

from .harness import MIB, TransferFailed
from .memory import Blocks, Region, resident_bytes
from .raw import process_vm, tcp

GRANULE = 4096
_STAGE = 64 * MIB


@contextlib.contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Set environment variables inside; None leaves one as it is."""
    wanted = {name: value for name, value in values.items() if value is not None}
    before = {name: os.environ.pop(name, None) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            os.environ.update({} if value is None else {name: value})


def finish(status: TransferStatus) -> None:
    """Wait for a transfer. Raises TransferFailed if it failed."""
    status.Wait()
    if not status.Succeeded():
        raise TransferFailed(f"{status.Code()}: {status.Message()}")


def in_flight(posts: Iterable[TransferStatus], depth: int, finished: Callable[[], object] = lambda: None) -> None:
    """Post transfers, at most `depth` pending at a time, wait for all, and call `finished` after each."""
    pending: deque[TransferStatus] = deque()

    def first() -> None:
        finish(pending.popleft())
        finished()

    for status in posts:
        pending.append(status)
        if len(pending) == depth:
            first()
    while pending:
        first()


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
        self._card = Card(engine.get_engine_desc().pack(), packed, os.getpid(), [span[0] for span in spans])
        return self._card

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

    def prepare_copies(self, here: Sequence[int], there: Sequence[int], size: int) -> None:
        """Make the yardstick that copies blocks between the same memories, at these offsets."""
        bases = zip(self._card.addresses, self._other.addresses, strict=True)
        self.copies = [
            process_vm.Copies(self._other.pid, [own + h for h in here], [other + t for t in there], size)
            for own, other in bases
        ]

    def copy_seconds(self, way: str, rounds: int) -> float:
        """Return the duration of one round of "read" or "write" of all blocks."""
        return sum(copies.seconds(way, rounds) for copies in self.copies)


class Usage(NamedTuple):
    """The resources that a process uses. cpu_s is the processor time of all its threads so far."""

    rss: int
    cpu_s: float
    threads: int
    fds: int


class Side(Endpoint):
    """Blocks on GPU `gpu` or in host memory."""

    def __init__(self, gpu: int = -1) -> None:
        super().__init__()
        self.regions = [Region(_STAGE)]  # the host's blocks, or the stage of a GPU's
        self.device: device.DeviceMemory | None = None
        self._gpu = gpu

    def make(self, place: str, block: int, count: int) -> None:
        """Replace the blocks by `count` of `block` bytes in memory of the GPU or of the host."""
        self.drop()
        if place == "gpu":
            self.device = device.DeviceMemory(block * count, self._gpu)
            self.blocks = Blocks(self.device.ptr, block, count, self.regions[0])
            return
        if self.regions[0].size < block * count:
            self.regions = [Region(block * count)]
        self.blocks = Blocks(self.regions[0].address, block, count)

    def drop(self) -> None:
        """Close the engine and free the GPU's blocks."""
        for held in (self.engine, self.device):
            if held is not None:
                held.close()
        self.engine = self.device = None

    def open(self, backend: str, providers: str | None, notifications: bool) -> Card:
        """Make an engine with one backend and register the blocks. `providers` are the only ones to use."""
        local = backend == "XGMI"
        config = IOEngineConfig("" if local else "127.0.0.1", 0)
        self.engine = IOEngine(f"bench-{backend.lower()}-{os.getpid()}", config)
        options = None if local else RdmaBackendConfig(enable_notification=notifications)
        with environment(FABRIC_PROVIDER=providers):
            self.engine.create_backend(BackendType[backend], options)
        span = self.blocks.address, self.blocks.size * self.blocks.count
        return self.register(self.engine, [span], self._gpu if self.device else -1)

    def wrong(self, here: Sequence[int], there: Sequence[int], size: int) -> int:
        """Count the blocks at offsets `here` that differ from the other side's blocks at `there`."""
        block = self.blocks.size
        return self.blocks.wrong(size, {h // block: t // block for h, t in zip(here, there, strict=True)})

    def usage(self) -> Usage:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        threads, fds = (len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd"))
        return Usage(resident_bytes(), spent.ru_utime + spent.ru_stime, threads, fds)
