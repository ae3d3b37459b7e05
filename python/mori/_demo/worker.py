# SPDX-License-Identifier: MIT
"""The prefill or the decode process: a KV cache, an engine, and what a serving engine's connector does with them."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from mori.cpp import TransferStatus
from mori.io import BackendType, EngineDesc, IOEngine, IOEngineConfig, IOEngineSession, MemoryDesc, MemoryLocationType

from .._bench import raw_cma, raw_tcp
from .._bench.memory import Pattern, Region
from .cache import Shape, block_table

Role = Literal["prefill", "decode"]
Mode = Literal["write", "read"]

_TELL_EVERY_S = 0.05
_MEET_TIMEOUT_S = 60


@dataclass(frozen=True)
class Greeting:
    """What the two processes tell each other over their own pipe before the first transfer."""

    engine: bytes
    memories: list[bytes]
    table: list[int]
    pid: int
    addresses: list[int]
    raw_port: int


@dataclass(frozen=True)
class LayerTime:
    """When a layer was submitted and when it was complete, in seconds since the first submission."""

    submitted: float
    completed: float


class Worker:
    """One side. The caller asks for its steps in order: allocate, meet, then raw passes, transfer and verify."""

    def __init__(self, role: Role, shape: Shape, seed: int, other: Connection) -> None:
        raw_cma.allow_peers()
        self.role, self.shape, self._other = role, shape, other
        self.table = block_table(shape, seed, role)
        self._pattern = Pattern(seed, shape.block_bytes, shape.moved_blocks)
        self.layers: list[Region] = []
        self.engine: IOEngine | None = None
        self._sessions: list[IOEngineSession] = []
        self._socks: dict[int, list[socket.socket]] = {}
        self._copies: list[raw_cma.Copies] = []
        self._remote_offsets: list[int] = []
        self._times: list[LayerTime] = []

    def allocate(self) -> Iterator[int]:
        """Makes the cache; prefill's holds the tokens, decode's is zero. Yields after each layer."""
        for layer in range(self.shape.layers):
            region = Region(self.shape.region_bytes)
            if self.role == "prefill":
                self._pattern.fill(region, self.shape.granules(layer, self.table))
            self.layers.append(region)
            yield layer

    def wipe(self) -> None:
        for region in self.layers:
            region.wipe()

    def meet(self, backend: int, mode: Mode) -> dict[str, object]:
        """Opens the engine and trades descriptors with the other process; the side that transfers tells its path."""
        self.engine = IOEngine(f"{self.role}-{os.getpid()}", IOEngineConfig("127.0.0.1", 0))
        self.engine.create_backend(BackendType(backend))
        memories = [
            self.engine.register_memory(region.address, region.size, -1, MemoryLocationType.CPU)
            for region in self.layers
        ]
        listener = raw_tcp.Listener()
        packed = [memory.pack() for memory in memories]
        addresses = [region.address for region in self.layers]
        mine = Greeting(self.engine.get_engine_desc().pack(), packed, self.table, os.getpid(), addresses, listener.port)
        theirs = self._trade(mine)
        self.engine.register_remote_engine(EngineDesc.unpack(theirs.engine))
        self._remote_offsets = self.shape.offsets(theirs.table)
        self._prepare_raw(theirs, listener)
        return self._open_sessions(packed, theirs) if self._transfers(mode) else {}

    def _transfers(self, mode: Mode) -> bool:
        return self.role == ("prefill" if mode == "write" else "decode")

    def _trade(self, mine: Greeting) -> Greeting:
        self._other.send(mine)
        if not self._other.poll(_MEET_TIMEOUT_S):
            raise TimeoutError(f"{self.role}: the other process sent no descriptors within {_MEET_TIMEOUT_S} s")
        theirs: Greeting = self._other.recv()
        return theirs

    def _open_sessions(self, packed: list[bytes], theirs: Greeting) -> dict[str, object]:
        assert self.engine is not None
        for local, remote in zip(packed, theirs.memories, strict=True):
            session = self.engine.create_session(MemoryDesc.unpack(local), MemoryDesc.unpack(remote))
            if session is None:
                raise RuntimeError(f"no path leads to the other process: {self.engine.describe()}")
            self._sessions.append(session)
        return self._sessions[0].describe()

    # The transfer.

    def transfer(self, mode: Mode, inflight: int) -> Iterator[int]:
        """Moves all layers, at most `inflight` at a time. Yields how many have been completed since the last event."""
        local, remote = self.shape.offsets(self.table), self._remote_offsets
        sizes = [self.shape.block_bytes] * len(local)
        pending: deque[tuple[float, TransferStatus]] = deque()
        times: list[LayerTime] = []
        told, told_at = 0, time.perf_counter()
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
            pending.append((now, batch(local, remote, sizes, uid)))
            if len(times) > told and time.perf_counter() - told_at > _TELL_EVERY_S:
                yield len(times) - told
                told, told_at = len(times), time.perf_counter()
        while pending:
            complete()
        yield len(times) - told
        self._times = times

    def times(self) -> list[LayerTime]:
        """One for each layer of the last transfer, in order."""
        return self._times

    def verify(self) -> Iterator[tuple[int, int]]:
        """Yields for each layer (wrong blocks, spare blocks that somebody wrote to). Runs on decode."""
        spare = self.shape.spare_offsets(self.table)
        for layer, region in enumerate(self.layers):
            wrong = self._pattern.wrong(region, self.shape.granules(layer, self.table))
            yield len(wrong), len(self._pattern.touched(region, spare))

    def spoil(self, layer: int) -> None:
        """Flips the last byte of one block that was moved, to show that verification finds it."""
        self.layers[layer].view[self.table[-1] * self.shape.block_bytes + self.shape.block_bytes - 1] ^= 0xFF

    # The raw limits, from prefill's blocks to decode's.

    def _prepare_raw(self, theirs: Greeting, listener: raw_tcp.Listener) -> None:
        for n in raw_tcp.CONNECTIONS:
            self._socks[n] = raw_tcp.dial(theirs.raw_port, n) if self.role == "prefill" else listener.accept(n)
        listener.close()
        if self.role == "decode":
            mine, there = self.shape.offsets(self.table), self._remote_offsets
            for region, base in zip(self.layers, theirs.addresses, strict=True):
                here = [region.address + offset for offset in mine]
                source = [base + offset for offset in there]
                self._copies.append(
                    raw_cma.Copies(theirs.pid, here, source, self.shape.block_bytes, entries_per_call=raw_cma.IOV_MAX)
                )

    def raw_read(self) -> float:
        """Decode copies all layers out of prefill with process_vm_readv; GB/s."""
        start = time.perf_counter()
        for copies in self._copies:
            copies.read()
        return self.shape.moved_bytes / (time.perf_counter() - start) / 1e9

    def raw_receive(self, n: int) -> Iterator[str]:
        yield "ready"
        for region in self.layers:
            raw_tcp.receive(self._socks[n], region.view, 1)

    def raw_send(self, n: int) -> float:
        """Prefill sends all layers through n connections, which decode receives at the same time; GB/s."""
        start = time.perf_counter()
        for region in self.layers:
            raw_tcp.send(self._socks[n], region.view, 1)
        return self.shape.cache_bytes / (time.perf_counter() - start) / 1e9

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
