# SPDX-License-Identifier: MIT
"""A process of `mori demo kv`: a paged KV cache, and the steps of an engine's connector."""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mori.cpp import TransferStatus
from mori.io import BackendType, IOEngine, IOEngineConfig

from .._bench.io_side import Card, Endpoint
from .._bench.memory import Pattern, Region
from .._bench.raw.process_vm import IOV_MAX

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
_REPORT_EVERY_S = 0.05

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
        """Where blocks lie in any layer's region: first their keys, then their values."""
        values = self.pool * self.block_bytes
        return [block * self.block_bytes + half for half in (0, values) for block in table]

    def granules(self, layer: int, table: list[int]) -> list[tuple[int, int]]:
        """(offset, index) of a layer's blocks, for `Pattern`: an index names a block in any table."""
        first = layer * 2 * self.blocks
        return [(offset, first + i) for i, offset in enumerate(self.offsets(table))]

    def spare_offsets(self, table: list[int]) -> list[int]:
        """Where the blocks lie that no token uses."""
        return self.offsets(sorted(set(range(self.pool)).difference(table)))


def block_table(shape: Shape, seed: int, role: str) -> list[int]:
    """The physical block of each logical one: shuffled, and different for each role."""
    return random.Random(f"{seed}/{role}").sample(range(shape.pool), shape.blocks)


class LayerTime(NamedTuple):
    """When a layer was submitted and completed, in seconds since the first submission."""

    submitted: float
    completed: float


class Worker(Endpoint):
    """One side. The caller runs its steps in order: allocate, open, connect, transfer, verify."""

    def __init__(self, role: str, shape: Shape, seed: int) -> None:
        super().__init__()
        self.shape, self.role = shape, role
        self.table = block_table(shape, seed, role)
        other = block_table(shape, seed, "decode" if role == "prefill" else "prefill")
        self._here, self._there = shape.offsets(self.table), shape.offsets(other)
        self._pattern = Pattern(seed, shape.block_bytes, shape.moved_blocks)
        self.times: list[LayerTime] = []

    def allocate(self) -> Iterator[int]:
        """Make the cache: prefill's holds the tokens, decode's is zero. Yield after each layer."""
        for layer in range(self.shape.layers):
            region = Region(self.shape.region_bytes)
            if self.role == "prefill":
                self._pattern.fill(region, self.shape.granules(layer, self.table))
            self.regions.append(region)
            yield layer

    def wipe(self) -> None:
        for region in self.regions:
            region.wipe()

    def open(self, backend: int) -> Card:
        """Make an engine and register each layer."""
        engine = IOEngine(f"{self.role}-{os.getpid()}", IOEngineConfig("127.0.0.1", 0))
        engine.create_backend(BackendType(backend))
        return self.register(engine, [(region.address, region.size) for region in self.regions])

    def start(self) -> dict[str, object]:
        """Open a session for each layer and return the description of the first."""
        self._sessions = self.sessions()
        return self._sessions[0].describe()

    def transfer(self, mode: Mode, inflight: int) -> Iterator[int]:
        """Move all layers, at most `inflight` at a time. Yield how many completed since then."""
        sizes = [self.shape.block_bytes] * len(self._here)
        pending: deque[tuple[float, TransferStatus]] = deque()
        times = self.times = []
        reported, reported_at = 0, time.perf_counter()
        start = time.perf_counter()

        def complete() -> None:
            submitted, status = pending.popleft()
            status.Wait()
            if not status.Succeeded():
                raise RuntimeError(f"layer {len(times)}: {status.Code()}: {status.Message()}")
            times.append(LayerTime(submitted, time.perf_counter() - start))

        for session in self._sessions:
            if len(pending) == inflight:
                complete()
            batch = session.batch_write if mode == "write" else session.batch_read
            uid, now = session.allocate_transfer_uid(), time.perf_counter() - start
            pending.append((now, batch(self._here, self._there, sizes, uid)))
            if len(times) > reported and time.perf_counter() - reported_at > _REPORT_EVERY_S:
                yield len(times) - reported
                reported, reported_at = len(times), time.perf_counter()
        while pending:
            complete()
        yield len(times) - reported

    def layer_times(self) -> list[LayerTime]:
        return self.times

    def verify(self) -> Iterator[tuple[int, int]]:
        """Yield how many blocks of each layer are wrong, and how many spare ones were written."""
        spare = self.shape.spare_offsets(self.table)
        for layer, region in enumerate(self.regions):
            wrong = self._pattern.wrong(region, self.shape.granules(layer, self.table))
            yield len(wrong), len(self._pattern.touched(region, spare))

    def spoil(self, layer: int) -> None:
        """Flip the last byte of one moved block, to show that verification finds it."""
        self.regions[layer].view[self.table[-1] * self.shape.block_bytes + self.shape.block_bytes - 1] ^= 0xFF

    def raw_read(self) -> float:
        """Copy all layers from prefill to decode with process_vm_readv. Return GB/s."""
        if not self.copies:
            self.prepare_copies(self._here, self._there, self.shape.block_bytes, IOV_MAX)
        return self.shape.moved_bytes / self.copy_seconds("read", 1) / 1e9

    def close(self) -> None:
        assert self.engine is not None
        self.engine.close()
