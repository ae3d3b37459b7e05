# SPDX-License-Identifier: MIT
"""The calls that vLLM's connector makes, in its order, as one worker of each role; see test_vllm.py."""

from __future__ import annotations

import time
from typing import Any

from gpus import Buffer, Memory
from mori.io import (  # the connector gives up if any of these names is missing
    BackendType,
    EngineDesc,
    IOEngine,
    IOEngineConfig,
    MemoryDesc,
    PollCqMode,
    RdmaBackendConfig,
    XgmiBackendConfig,
)
from support import pattern

LAYERS, BLOCKS, BLOCK = 6, 32, 4096


class Tensor:
    """A layer's KV cache, with the part of torch's tensor that registration uses."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        on_host = buffer.device < 0
        fields = {"type": "cpu", "index": None} if on_host else {"type": "cuda", "index": buffer.device}
        self.device = type("Device", (), fields)()

    def is_contiguous(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return self.buffer.ptr

    def nelement(self) -> int:
        return len(self.buffer) // 2

    def element_size(self) -> int:
        return 2


def layer_content(role: str, layer: int) -> bytes:
    return pattern(BLOCKS * BLOCK, sum(role.encode()) * 100 + layer)


class Worker:
    def __init__(self, role: str, port: int, memory: Memory, backend: BackendType) -> None:
        self.engine = IOEngine(f"{role}:127.0.0.1:{port}:tp0:dp0", IOEngineConfig("127.0.0.1", port))
        if backend is BackendType.RDMA:
            config = RdmaBackendConfig(1, -1, 1, PollCqMode.POLLING, enable_notification=False)
            self.engine.create_backend(BackendType.RDMA, config)
        else:
            self.engine.create_backend(BackendType.XGMI, XgmiBackendConfig())
        self.caches = [Tensor(memory.alloc(layer_content(role, n))) for n in range(LAYERS)]
        # The last layer shares the tensor of the first, as models with tied layers do.
        self.caches[-1] = self.caches[0]
        self.packed = [self.engine.register_torch_tensor(cache).pack() for cache in self.caches]
        self.sessions: dict[str, list[Any]] = {}

    def metadata(self) -> tuple[bytes, list[bytes]]:
        return self.engine.get_engine_desc().pack(), self.packed

    def handshake(self, metadata: tuple[bytes, list[bytes]]) -> str:
        desc = EngineDesc.unpack(metadata[0])
        self.engine.register_remote_engine(desc)
        self.remote = metadata[1]
        return desc.key

    def sessions_to(self, key: str) -> list[Any]:
        if key not in self.sessions:
            self.sessions[key] = [
                self.engine.create_session(MemoryDesc.unpack(local), MemoryDesc.unpack(remote))
                for local, remote in zip(self.packed, self.remote, strict=True)
            ]
        return self.sessions[key]

    def write_layers(self, key: str, local: list[int], remote: list[int], sizes: list[int]) -> None:
        statuses = [
            session.batch_write(local, remote, sizes, self.engine.allocate_transfer_uid())
            for session in self.sessions_to(key)
        ]
        deadline = time.monotonic() + 20
        waiting = statuses
        while waiting:
            for status in waiting:
                if status.Failed():
                    raise RuntimeError(f"transfer failed: {status.Message()} {status.Code()}")
            waiting = [status for status in waiting if not status.Succeeded()]
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.001)

    def read_layers(self, key: str, local: list[int], remote: list[int], sizes: list[int]) -> None:
        statuses = [
            session.batch_read(local, remote, sizes, self.engine.allocate_transfer_uid())
            for session in self.sessions_to(key)
        ]
        deadline = time.monotonic() + 20
        while not statuses[-1].Succeeded():
            assert not statuses[-1].Failed(), statuses[-1].Message()
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def contents(self) -> list[bytes]:
        return [bytes(cache.buffer) for cache in self.caches]
