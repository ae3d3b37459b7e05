# SPDX-License-Identifier: MIT
"""A process of `mori demo kv`: a paged KV cache, and the steps of an engine's connector."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mori.cpp import TransferStatus
from mori.io import BackendType, IOEngine, IOEngineConfig

from .._bench.io_side import Card, Endpoint, in_flight
from .._bench.memory import Pattern, Region
from .._bench.report import bar

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}

Mode = Literal["write", "read"]


@dataclass(frozen=True)
class Shape:
    """One region per layer, which holds all K blocks of a pool and then all its V blocks.

    A block has the keys (or the values) of `block_size` tokens. The pool has a few blocks more than
    the tokens need, as in a serving engine, so a block table is a choice and not only an order.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    block_size: int
    tokens: int

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim", "block_size", "tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPE_BYTES)}, got {self.dtype!r}")

    def __str__(self) -> str:
        return (
            f"{self.layers} layers, {self.kv_heads} KV heads x {self.head_dim}, {self.dtype}, "
            f"{self.tokens} tokens in blocks of {self.block_size}"
        )

    @property
    def block_bytes(self) -> int:
        return self.block_size * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def blocks(self) -> int:
        """Blocks that the tokens fill, of K or of V, in one layer."""
        return -(-self.tokens // self.block_size)

    @property
    def pool(self) -> int:
        """Blocks of K or of V in one layer's region, spare ones included."""
        return self.blocks + max(4, self.blocks // 16)

    @property
    def region_bytes(self) -> int:
        return 2 * self.pool * self.block_bytes

    @property
    def cache_bytes(self) -> int:
        return self.layers * self.region_bytes

    @property
    def layer_bytes(self) -> int:
        """Bytes of a layer that are moved."""
        return 2 * self.blocks * self.block_bytes

    @property
    def moved_blocks(self) -> int:
        return self.layers * 2 * self.blocks

    @property
    def moved_bytes(self) -> int:
        return self.layers * self.layer_bytes

    def offsets(self, table: list[int]) -> list[int]:
        """Offsets of blocks in any layer's region: first their keys, then their values."""
        values = self.pool * self.block_bytes
        return [block * self.block_bytes + half for half in (0, values) for block in table]

    def granules(self, layer: int, table: list[int]) -> list[tuple[int, int]]:
        """(offset, index) of a layer's blocks, for `Pattern`: an index names a block in any table."""
        first = layer * 2 * self.blocks
        return [(offset, first + i) for i, offset in enumerate(self.offsets(table))]

    def spare_offsets(self, table: list[int]) -> list[int]:
        """Offsets of the blocks that no token uses."""
        return self.offsets(sorted(set(range(self.pool)).difference(table)))


def block_table(shape: Shape, seed: int, role: str) -> list[int]:
    """The physical block of each logical one: shuffled, and different for each role."""
    return random.Random(f"{seed}/{role}").sample(range(shape.pool), shape.blocks)


class LayerTime(NamedTuple):
    """When a layer was submitted and completed, in seconds since the first submission."""

    submitted: float
    completed: float


class Worker(Endpoint):
    """One side. The caller runs its steps in order: allocate, open, connect, start, transfer, verify."""

    def __init__(self, role: str, shape: Shape, seed: int, quiet: bool) -> None:
        super().__init__()
        self.shape, self.role, self._quiet = shape, role, quiet
        self.table = block_table(shape, seed, role)
        other = block_table(shape, seed, "decode" if role == "prefill" else "prefill")
        self._here, self._there = shape.offsets(self.table), shape.offsets(other)
        self._pattern = Pattern(seed, shape.block_bytes, shape.moved_blocks)

    def allocate(self) -> None:
        """Make the cache: prefill's holds the tokens, decode's is zero."""
        fills = self.role == "prefill"
        with bar(self.shape.layers, self._quiet or not fills, desc="filling  ", unit=" layers") as progress:
            for layer in range(self.shape.layers):
                self.regions.append(Region(self.shape.region_bytes))
                if fills:
                    self._pattern.fill(self.regions[-1], self.shape.granules(layer, self.table))
                progress.update()

    def wipe(self) -> None:
        for region in self.regions:
            region.wipe()

    def open(self, backend: int) -> Card:
        """Make an engine and register each layer."""
        engine = IOEngine(f"{self.role}-{os.getpid()}", IOEngineConfig("127.0.0.1", 0))
        engine.create_backend(BackendType(backend))
        return self.register(engine, [(region.address, region.size) for region in self.regions])

    def start(self) -> dict[str, Any]:
        """Open a session for each layer and return the description of the first."""
        self._sessions = self.sessions()
        return self._sessions[0].describe()

    def transfer(self, mode: Mode, inflight: int) -> list[LayerTime]:
        """Move all layers, at most `inflight` at a time."""
        sizes = [self.shape.block_bytes] * len(self._here)
        submitted: list[float] = []
        completed: list[float] = []
        style = "{desc}: {percentage:3.0f}%|{bar}| {n:.2f}/{total:.2f} GB [{elapsed}<{remaining}, {rate_fmt}]"
        total, clock = self.shape.moved_bytes / 1e9, time.perf_counter

        def posts() -> Iterator[TransferStatus]:
            for session in self._sessions:
                batch = session.batch_write if mode == "write" else session.batch_read
                submitted.append(clock() - start)
                yield batch(self._here, self._there, sizes, session.allocate_transfer_uid())

        def finished() -> None:
            completed.append(clock() - start)
            progress.update(self.shape.layer_bytes / 1e9)

        with bar(total, self._quiet, desc="moving   ", unit=" GB", bar_format=style) as progress:
            start = clock()
            in_flight(posts(), inflight, finished)
        return list(map(LayerTime, submitted, completed))

    def verify(self) -> tuple[int, int]:
        """Return how many blocks are wrong, and how many spare ones were written."""
        spare = self.shape.spare_offsets(self.table)
        wrong = touched = 0
        with bar(self.shape.layers, self._quiet, desc="verifying", unit=" layers") as progress:
            for layer, region in enumerate(self.regions):
                wrong += len(self._pattern.wrong(region, self.shape.granules(layer, self.table)))
                touched += len(self._pattern.touched(region, spare))
                progress.update()
        return wrong, touched

    def spoil(self, layer: int) -> None:
        """Flip the last byte of one moved block, to show that verification finds it."""
        self.regions[layer].view[self.table[-1] * self.shape.block_bytes + self.shape.block_bytes - 1] ^= 0xFF

    def close(self) -> None:
        assert self.engine is not None
        self.engine.close()
