# SPDX-License-Identifier: MIT
"""One side of a transfer: blocks of a GPU's memory, or of the host's, and an engine that has registered them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from mori import device
from mori.io import BackendType, IOEngine, IOEngineConfig, MemoryLocationType, RdmaBackendConfig

from ..cases import MIB
from ..memory import Pattern, Region
from ..raw_side import Card, EngineSide
from .cases import Place, Via

_SEED = 20_26
_STAGE = 64 * MIB


@dataclass(frozen=True)
class Pool:
    """Where a side has how many blocks of how many bytes."""

    place: Place
    block: int
    count: int

    @property
    def bytes(self) -> int:
        return self.block * self.count


class HostBlocks:
    """Host memory with the methods of device.DeviceMemory that are used here."""

    def __init__(self, nbytes: int) -> None:
        self._region = Region(nbytes)
        self.ptr, self.nbytes = self._region.address, nbytes

    def write(self, data: memoryview, offset: int = 0) -> None:
        self._region.view[offset : offset + len(data)] = data

    def read(self, nbytes: int, offset: int = 0) -> bytes:
        return self._region.bytes(offset, nbytes)

    def fill(self, value: int) -> None:
        assert value == 0
        self._region.wipe()

    def close(self) -> None:
        """Nothing: the mapping goes with the object."""


class GPUSide(EngineSide):
    """A side whose blocks are on GPU `gpu` or in host memory.

    Bytes are made and looked at in `region`, some at a time.
    """

    def __init__(self, gpu: int) -> None:
        super().__init__(Region(_STAGE))
        self._gpu = gpu
        self._pool = Pool("host", 1, 1)
        self.blocks: device.DeviceMemory | HostBlocks | None = None

    def make(self, pool: Pool) -> None:
        """Blocks instead of those that were there."""
        self.drop()
        self.blocks = device.DeviceMemory(pool.bytes, self._gpu) if pool.place == "gpu" else HostBlocks(pool.bytes)
        self._pool, self._pattern = pool, Pattern(_SEED, pool.block, pool.count)

    def drop(self) -> None:
        """Ends what `open` and `make` made."""
        self.shut()
        if self.blocks is not None:
            self.blocks.close()
        self.blocks = None

    def open(self, via: Via) -> Card:
        """Makes an engine with one backend, and registers the blocks."""
        assert self.blocks is not None
        host = "" if via == "XGMI" else "127.0.0.1"
        self.engine = IOEngine(f"bench-{via}-{os.getpid()}", IOEngineConfig(host, 0))
        config = None if via == "XGMI" else RdmaBackendConfig(enable_notification=False)
        self.engine.create_backend(BackendType[via], config)
        on_gpu = self._pool.place == "gpu"
        where = MemoryLocationType.GPU if on_gpu else MemoryLocationType.CPU
        self.memory = self.engine.register_memory(self.blocks.ptr, self._pool.bytes, self._gpu if on_gpu else -1, where)
        return self.card()

    # The bytes.

    def fill(self) -> None:
        """Block i gets granule i of the pattern."""
        assert self.blocks is not None
        size = self._pool.block
        for first, last in self._portions():
            self._pattern.fill(self.region, (((i - first) * size, i) for i in range(first, last)))
            self.blocks.write(self.region.view[: (last - first) * size], first * size)

    def wipe(self) -> None:
        assert self.blocks is not None
        self.blocks.fill(0)

    def wrong(self, granules: Sequence[int]) -> int:
        """How many blocks differ from the granule that each should hold; all blocks are looked at."""
        assert self.blocks is not None
        size, wrong = self._pool.block, 0
        for first, last in self._portions():
            self.region.view[: (last - first) * size] = self.blocks.read((last - first) * size, first * size)
            expected = (((i - first) * size, granules[i]) for i in range(first, last))
            wrong += len(self._pattern.wrong(self.region, expected))
        return wrong

    def _portions(self) -> list[tuple[int, int]]:
        """Ranges of blocks that fit into the region, one after the other."""
        step, count = _STAGE // self._pool.block, self._pool.count
        return [(first, min(first + step, count)) for first in range(0, count, step)]
