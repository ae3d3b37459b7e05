# SPDX-License-Identifier: MIT
"""The prefill or the decode process: a KV cache, an engine, and the steps of a serving engine's
connector.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mori.cpp import TransferStatus
from mori.io import BackendType, EngineDesc, IOEngine, IOEngineConfig, IOEngineSession, MemoryDesc, MemoryLocationType

from .._bench.memory import Pattern, Region
from .._bench.raw import process_vm, tcp
from .cache import Shape, block_table

Role = Literal["prefill", "decode"]
Mode = Literal["write", "read"]

_REPORT_EVERY_S = 0.05


class Card(NamedTuple):
    """What the other process needs for transfers: packed descriptors; pid and addresses for the
    yardstick.
    """

    engine: bytes
    memories: list[bytes]
    table: list[int]
    pid: int
    addresses: list[int]


@dataclass(frozen=True)
class LayerTime:
    """When a layer was submitted and completed, in seconds since the first submission."""

    submitted: float
    completed: float


class Worker:
    """One side. The caller runs its steps in order: allocate, open, connect, then transfer and
    verify.
    """

    def __init__(self, role: Role, shape: Shape, seed: int) -> None:
        process_vm.allow_peers()
        self.role, self.shape, self.table = role, shape, block_table(shape, seed, role)
        self.tcp = tcp.Streams(lambda: [region.view for region in self.layers])
        self.layers: list[Region] = []
        self.times: list[LayerTime] = []
        self._pattern = Pattern(seed, shape.block_bytes, shape.moved_blocks)
        self._copies: list[process_vm.Copies] = []

    def allocate(self) -> Iterator[int]:
        """Make the cache: prefill's holds the tokens, decode's is zero. Yield after each layer."""
        for layer in range(self.shape.layers):
            region = Region(self.shape.region_bytes)
            if self.role == "prefill":
                self._pattern.fill(region, self.shape.granules(layer, self.table))
            self.layers.append(region)
            yield layer

    def wipe(self) -> None:
        for region in self.layers:
            region.wipe()

    def open(self, backend: int) -> Card:
        """Make an engine and register each layer."""
        self.engine = IOEngine(f"{self.role}-{os.getpid()}", IOEngineConfig("127.0.0.1", 0))
        self.engine.create_backend(BackendType(backend))
        register, host = self.engine.register_memory, MemoryLocationType.CPU
        self._memories = [register(region.address, region.size, -1, host) for region in self.layers]
        packed = [memory.pack() for memory in self._memories]
        addresses = [region.address for region in self.layers]
        return Card(self.engine.get_engine_desc().pack(), packed, self.table, os.getpid(), addresses)

    def connect(self, peer: Card, mode: Mode) -> dict[str, object]:
        """Register the peer. The side that transfers opens its sessions and returns their
        description.
        """
        self.engine.register_remote_engine(EngineDesc.unpack(peer.engine))
        self._local, self._remote = self.shape.offsets(self.table), self.shape.offsets(peer.table)
        if self.role == "decode":
            for region, base in zip(self.layers, peer.addresses, strict=True):
                mine, theirs = [region.address + at for at in self._local], [base + at for at in self._remote]
                size, per_call = self.shape.block_bytes, process_vm.IOV_MAX
                self._copies.append(process_vm.Copies(peer.pid, mine, theirs, size, entries_per_call=per_call))
        if self.role != ("prefill" if mode == "write" else "decode"):
            return {}
        pairs = zip(self._memories, peer.memories, strict=True)
        self._sessions = [self._session(local, MemoryDesc.unpack(remote)) for local, remote in pairs]
        return self._sessions[0].describe()

    def _session(self, local: MemoryDesc, remote: MemoryDesc) -> IOEngineSession:
        session = self.engine.create_session(local, remote)
        if session is None:
            raise RuntimeError(f"no path leads to the other process: {self.engine.describe()}")
        return session

    def transfer(self, mode: Mode, inflight: int) -> Iterator[int]:
        """Move all layers, at most `inflight` at a time. Yield how many completed since the last
        event.
        """
        sizes = [self.shape.block_bytes] * len(self._local)
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
            pending.append((now, batch(self._local, self._remote, sizes, uid)))
            if len(times) > reported and time.perf_counter() - reported_at > _REPORT_EVERY_S:
                yield len(times) - reported
                reported, reported_at = len(times), time.perf_counter()
        while pending:
            complete()
        yield len(times) - reported

    def layer_times(self) -> list[LayerTime]:
        return self.times

    def verify(self) -> Iterator[tuple[int, int]]:
        """Yield for each layer of decode the counts of wrong blocks and of overwritten spare
        blocks.
        """
        spare = self.shape.spare_offsets(self.table)
        for layer, region in enumerate(self.layers):
            wrong = self._pattern.wrong(region, self.shape.granules(layer, self.table))
            yield len(wrong), len(self._pattern.touched(region, spare))

    def spoil(self, layer: int) -> None:
        """Flip the last byte of one moved block, to show that verification finds it."""
        self.layers[layer].view[self.table[-1] * self.shape.block_bytes + self.shape.block_bytes - 1] ^= 0xFF

    def raw_read(self) -> float:
        """Copy all layers from prefill to decode with process_vm_readv. Return GB/s."""
        seconds = sum(copies.seconds("read", 1) for copies in self._copies)
        return self.shape.moved_bytes / seconds / 1e9

    def close(self) -> None:
        self.engine.close()
