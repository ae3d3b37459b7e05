# SPDX-License-Identifier: MIT
"""The calls that SGLang's disaggregation makes, in its order; see test_sglang.py."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpus import Memory
from mori.cpp import TransferStatus
from mori.io import (
    BackendType,
    EngineDesc,
    IOEngine,
    IOEngineConfig,
    MemoryDesc,
    MemoryLocationType,
    PollCqMode,
    RdmaBackendConfig,
    StatusCode,
)
from mori.tensor_utils import buffer_span
from support import pattern

LAYERS, PAGES, PAGE, AUX = 4, 256, 1024, 96
SHARDS = 8


class Manager:
    def __init__(self, role: str, memory: Memory, devices: str | None = None) -> None:
        if devices is not None:
            os.environ["MORI_RDMA_DEVICES"] = devices
        self.engine = IOEngine(f"io-{role}-{os.getpid()}", IOEngineConfig(host="127.0.0.1", port=0))
        poll_mode = PollCqMode.POLLING
        assert poll_mode.name == "POLLING"
        self.engine.create_backend(BackendType.RDMA, RdmaBackendConfig(4, -1, 4, poll_mode, False))
        self.engine_desc = self.engine.get_engine_desc()
        assert self.engine_desc.port > 0
        # KV buffers are sub-regions of one allocation, aux buffers stand alone.
        self.pool = memory.alloc(pattern(LAYERS * PAGES * PAGE, len(role)))
        base, _, gpu, loc = self.pool.span
        self.kv = [self.engine.register_memory(base + n * PAGES * PAGE, PAGES * PAGE, gpu, loc) for n in range(LAYERS)]
        self.aux = [bytearray(pattern(AUX, 100 + len(role) + n)) for n in range(3)]
        self.aux_descs = [
            self.engine.register_memory(buffer_span(buffer).ptr, AUX, -1, MemoryLocationType.CPU) for buffer in self.aux
        ]

    def registration(self) -> tuple[bytes, list[bytes], list[bytes]]:
        return (
            self.engine_desc.pack(),
            [desc.pack() for desc in self.kv],
            [desc.pack() for desc in self.aux_descs],
        )

    def add_peer(self, registration: tuple[bytes, list[bytes], list[bytes]]) -> str:
        desc = EngineDesc.unpack(registration[0])
        self.engine.register_remote_engine(desc)
        self.peer_kv = [MemoryDesc.unpack(packed) for packed in registration[1]]
        self.peer_aux = [MemoryDesc.unpack(packed) for packed in registration[2]]
        return desc.key

    def send_chunk(self, pages: list[int], to_pages: list[int]) -> list[TransferStatus]:
        statuses: list[TransferStatus] = []
        for source, target in zip(self.kv, self.peer_kv, strict=True):
            local, remote = [n * PAGE for n in pages], [n * PAGE for n in to_pages]
            uid = self.engine.allocate_transfer_uid()
            statuses.extend(
                self.engine.batch_write([source], [local], [target], [remote], [[PAGE] * len(pages)], [uid])
            )
        return statuses

    def send_aux(self) -> list[TransferStatus]:
        count = len(self.aux_descs)
        uids = [self.engine.allocate_transfer_uid() for _ in range(count)]
        columns: list[list[Any]] = [[[0]] * count, [[0]] * count, [[AUX]] * count]
        return self.engine.batch_write(self.aux_descs, columns[0], self.peer_aux, columns[1], columns[2], uids)

    def wait(self, statuses: list[TransferStatus]) -> tuple[StatusCode, str]:
        while True:
            rc = self.engine.wait_all(statuses, timeout_ms=1000)
            if rc != StatusCode.IN_PROGRESS:
                break
        if rc != StatusCode.SUCCESS:
            return rc, next(status.Message() for status in statuses if status.Failed())
        return rc, ""

    def send_all(self, pages: list[int], to_pages: list[int]) -> list[tuple[StatusCode, str]]:
        """Eight shard threads send their parts of the pages, the aux buffers go with the first."""

        def shard(n: int) -> tuple[StatusCode, str]:
            statuses = self.send_chunk(pages[n::SHARDS], to_pages[n::SHARDS])
            if n == 0:
                statuses += self.send_aux()
            return self.wait(statuses)

        with ThreadPoolExecutor(SHARDS) as pool:
            return list(pool.map(shard, range(SHARDS)))

    def contents(self) -> tuple[bytes, list[bytes]]:
        return bytes(self.pool), [bytes(buffer) for buffer in self.aux]
