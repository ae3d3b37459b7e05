# SPDX-License-Identifier: MIT
"""One side of a transfer: blocks in host or GPU memory, an engine, and the yardsticks' means.

The measuring process holds one Side; the other lives in a spawned process behind a Remote.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    before = {name: os.environ.get(name) for name, value in values.items() if value is not None}
    os.environ.update({name: value for name, value in values.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class Card(NamedTuple):
    """What the other side needs to open a session: packed descriptors, as any client sends them."""

    engine: bytes
    memory: bytes


class Usage(NamedTuple):
    """What a process holds. cpu_s is the processor time of all its threads so far."""

    rss: int
    cpu_s: float
    threads: int
    fds: int


@dataclass(frozen=True)
class Pool:
    """`count` blocks of `block` bytes in memory of the GPU or of the host."""

    place: str
    block: int
    count: int

    @property
    def bytes(self) -> int:
        return self.block * self.count


class Side:
    """Blocks on GPU `gpu` or in host memory. Block i of the source holds granule i of a pattern."""

    def __init__(self, gpu: int = -1) -> None:
        process_vm.allow_peers()
        self.region = Region(_STAGE)  # the host's blocks, or a staging buffer for a GPU's
        self.device: device.DeviceMemory | None = None
        self.engine: IOEngine | None = None
        self.tcp = tcp.Streams(lambda: [self.region.view])
        self.copies: process_vm.Copies | None = None
        self._gpu = gpu

    def make(self, pool: Pool) -> tuple[int, int]:
        """Replace the blocks. Return the process id and the address of the blocks."""
        self.drop()
        self._pool, self._pattern = pool, Pattern(_SEED, pool.block, pool.count)
        if pool.place == "gpu":
            self.device = device.DeviceMemory(pool.bytes, self._gpu)
            self.address = self.device.ptr
        else:
            if self.region.size < pool.bytes:
                self.region = Region(pool.bytes)
            self.address = self.region.address
        return os.getpid(), self.address

    def drop(self) -> None:
        """Close the engine and free the GPU's blocks."""
        if self.engine is not None:
            self.engine.close()
        if self.device is not None:
            self.device.close()
        self.engine = self.device = None

    # The engine.

    def open(self, backend: str, path: str, notifications: bool) -> Card:
        """Make an engine with one backend and register the blocks."""
        local = backend == "XGMI"
        self.engine = IOEngine(f"bench-{path}-{os.getpid()}", IOEngineConfig("" if local else "127.0.0.1", 0))
        config = None if local else RdmaBackendConfig(enable_notification=notifications)
        with environment(FABRIC_PROVIDER="verbs,tcp" if path == "verbs" else None):
            self.engine.create_backend(BackendType[backend], config)
        gpu = self._gpu if self.device else -1
        where = MemoryLocationType.GPU if self.device else MemoryLocationType.CPU
        self.memory = self.engine.register_memory(self.address, self._pool.bytes, gpu, where)
        return Card(self.engine.get_engine_desc().pack(), self.memory.pack())

    def add_peer(self, other: Card) -> None:
        assert self.engine is not None
        self.engine.register_remote_engine(EngineDesc.unpack(other.engine))

    def session(self, other: Card) -> IOEngineSession:
        assert self.engine is not None
        session = self.engine.create_session(self.memory, MemoryDesc.unpack(other.memory))
        if session is None:
            raise RuntimeError(f"no path leads to the other side: {self.engine.describe()}")
        return session

    # The bytes.

    def _portions(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of blocks that fit into the staging buffer."""
        step, count = _STAGE // self._pool.block, self._pool.count
        for first in range(0, count, step):
            yield first, min(first + step, count)

    def fill(self) -> None:
        size = self._pool.block
        if self.device is None:
            self._pattern.fill(self.region, ((i * size, i) for i in range(self._pool.count)))
            return
        for first, last in self._portions():
            self._pattern.fill(self.region, (((i - first) * size, i) for i in range(first, last)))
            self.device.write(self.region.view[: (last - first) * size], first * size)

    def wipe(self, offsets: Sequence[int], size: int) -> None:
        """Zero the blocks at the offsets; on a GPU, all blocks."""
        if self.device is not None:
            self.device.fill(0)
            return
        for offset in offsets:
            self.region.wipe(offset, size)

    def wrong(self, here: Sequence[int], there: Sequence[int], size: int) -> int:
        """Count the blocks at offsets `here` that differ from the other side's blocks at `there`.

        Only the first `size` bytes of a host block are compared. On a GPU `here` names every block.
        """
        block = self._pool.block
        if self.device is None and size == block:
            pairs = ((h, t // block) for h, t in zip(here, there, strict=True))
            return len(self._pattern.wrong(self.region, pairs))
        if self.device is None:
            blocks = zip(here, there, strict=True)
            return sum(self.region.bytes(h, size) != self._pattern.expected(t, size) for h, t in blocks)
        source, wrong = dict(zip(here, there, strict=True)), 0
        for first, last in self._portions():
            self.region.view[: (last - first) * block] = self.device.read((last - first) * block, first * block)
            expected = (((i - first) * block, source[i * block] // block) for i in range(first, last))
            wrong += len(self._pattern.wrong(self.region, expected))
        return wrong

    # The process.

    def prepare_copies(
        self, pid: int, address: int, here: Sequence[int], there: Sequence[int], size: int, per_call: int
    ) -> None:
        """Make the iovecs of `copies`; `address` is that of the other side's blocks."""
        mine, theirs = [self.address + offset for offset in here], [address + offset for offset in there]
        self.copies = process_vm.Copies(pid, mine, theirs, size, entries_per_call=per_call)

    def usage(self) -> Usage:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        threads, fds = (len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd"))
        return Usage(resident_bytes(), spent.ru_utime + spent.ru_stime, threads, fds)
