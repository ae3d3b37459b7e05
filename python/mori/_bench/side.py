# SPDX-License-Identifier: MIT
"""One side of a measurement: a buffer, an engine, and the raw means to move the same bytes.

The measuring process holds one `Side`; the other lives in a spawned process behind `process.Remote`. Both have the same
methods, so a write and a read differ only in which side is wiped, filled and checked.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mori.io import BackendType, IOEngine, IOEngineConfig, MemoryLocationType, RdmaBackendConfig

from . import raw_cma
from .memory import Pattern, Region, resident_bytes
from .raw_side import Card, EngineSide

Path = Literal["shm", "verbs", "tcp"]

GRANULE = 4096
_SEED = 20_26


@contextlib.contextmanager
def _only_devices(wanted: bool) -> Iterator[None]:
    """Inside, backends leave shared memory out, and reach this host as they reach another one."""
    was = os.environ.get("FABRIC_PROVIDER")
    if wanted:
        os.environ["FABRIC_PROVIDER"] = "verbs,tcp"
    try:
        yield
    finally:
        if wanted and was is None:
            del os.environ["FABRIC_PROVIDER"]
        elif was is not None:
            os.environ["FABRIC_PROVIDER"] = was


@dataclass(frozen=True)
class Usage:
    """What a process holds now. cpu_s is the processor time that all its threads have used so far."""

    rss: int
    cpu_s: float
    threads: int
    fds: int


class Side(EngineSide):
    """A buffer of `size` bytes, a multiple of 4096, filled with a pattern on demand."""

    def __init__(self, size: int) -> None:
        raw_cma.allow_peers()
        super().__init__(Region(size))
        self.pattern = Pattern(_SEED, GRANULE, size // GRANULE)
        self._copies: raw_cma.Copies | None = None

    def where(self) -> tuple[int, int]:
        """(process id, address of the buffer)."""
        return os.getpid(), self.region.address

    # The buffer.

    def fill(self) -> None:
        self.pattern.fill(self.region, ((i * GRANULE, i) for i in range(self.pattern.count)))

    def wipe(self, offsets: Sequence[int], size: int) -> None:
        for offset in offsets:
            self.region.wipe(offset, size)

    def wrong(self, here: Sequence[int], there: Sequence[int], size: int) -> int:
        """Counts blocks that differ from the other side's pattern: `there` are the offsets that they came from."""
        if size % GRANULE == 0:
            steps = range(0, size, GRANULE)
            pairs = ((h + i, (t + i) // GRANULE) for h, t in zip(here, there, strict=True) for i in steps)
            return len(self.pattern.wrong(self.region, pairs))
        view = self.region.view
        return sum(view[h : h + size] != self.pattern.expected(t, size) for h, t in zip(here, there, strict=True))

    # The engine.

    def open(self, path: Path, notifications: bool) -> Card:
        """Makes an engine that uses the path, and registers the buffer."""
        self.engine = IOEngine(f"bench-{path}-{os.getpid()}", IOEngineConfig("127.0.0.1", 0))
        config = RdmaBackendConfig(enable_notification=notifications)
        with _only_devices(path == "verbs"):
            self.engine.create_backend(BackendType.TCP if path == "tcp" else BackendType.RDMA, config)
        self.memory = self.engine.register_memory(self.region.address, self.region.size, -1, MemoryLocationType.CPU)
        return self.card()

    # Raw CMA.

    def raw_prepare(
        self, pid: int, base: int, here: Sequence[int], there: Sequence[int], size: int, per_call: int
    ) -> None:
        """Makes the iovecs for `raw_copy`; `base` is the address of the other side's buffer."""
        mine = [self.region.address + offset for offset in here]
        theirs = [base + offset for offset in there]
        self._copies = raw_cma.Copies(pid, mine, theirs, size, entries_per_call=per_call)

    def raw_copier(self, way: Literal["read", "write"]) -> Callable[[], None]:
        """One round of the prepared copies, as a call."""
        assert self._copies is not None
        return self._copies.read if way == "read" else self._copies.write

    def raw_copy(self, way: Literal["read", "write"], rounds: int) -> float:
        """Seconds of one round of the prepared copies."""
        run = self.raw_copier(way)
        start = time.perf_counter()
        for _ in range(rounds):
            run()
        return (time.perf_counter() - start) / rounds

    # The process.

    def usage(self) -> Usage:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        return Usage(
            rss=resident_bytes(),
            cpu_s=spent.ru_utime + spent.ru_stime,
            threads=len(os.listdir("/proc/self/task")),
            fds=len(os.listdir("/proc/self/fd")),
        )
