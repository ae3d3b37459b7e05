# SPDX-License-Identifier: MIT
"""vLLM's connector against a peer in another process: WRITE mode and READ mode."""

from __future__ import annotations

import multiprocessing
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import pytest
from vllm_calls import BLOCK, BLOCKS, LAYERS, Worker, layer_content

from gpus import Memory
from mori.io import BackendType


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(pipe: Connection, role: str, port: int, memory: Memory, backend: int) -> None:
    worker = Worker(role, port, memory, BackendType[BackendType(backend).name])
    while True:
        try:
            name, args = pipe.recv()
        except EOFError:
            return  # as in vLLM, the engine is not closed
        pipe.send(getattr(worker, name)(*args))


class RemoteWorker:
    def __init__(self, role: str, memory: Memory, backend: BackendType) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        args = (theirs, role, free_port(), memory, int(backend))
        self.process = context.Process(target=serve, args=args, daemon=True)
        self.process.start()
        theirs.close()

    def call(self, name: str, *args: Any) -> Any:
        self.pipe.send((name, args))
        assert self.pipe.poll(30), name
        return self.pipe.recv()


@pytest.fixture
def memory(request: pytest.FixtureRequest, way: tuple[str, BackendType]) -> Iterator[Memory]:
    if way[0] == "gpu":
        request.getfixturevalue("gpu_env")
    memory = Memory(way[0])
    yield memory
    memory.close()


@pytest.fixture(
    params=[("host", BackendType.RDMA), ("gpu", BackendType.RDMA), ("gpu", BackendType.XGMI)],
    ids=["host", "gpu", "gpu by XGMI"],
)
def way(request: pytest.FixtureRequest) -> tuple[str, BackendType]:
    """Where the caches are, and the backend that is configured."""
    return request.param


@pytest.fixture
def remote(memory: Memory, way: tuple[str, BackendType]) -> Iterator[RemoteWorker]:
    worker = RemoteWorker("consumer", memory, way[1])
    yield worker
    worker.pipe.close()
    worker.process.join(10)
    assert worker.process.exitcode == 0


@pytest.fixture
def local(memory: Memory, way: tuple[str, BackendType], remote: RemoteWorker) -> Iterator[Worker]:
    worker = Worker("producer", free_port(), memory, way[1])
    yield worker
    worker.engine.close()


def block_table(seed: int) -> tuple[list[int], list[int], list[int]]:
    rng = random.Random(seed)
    mine, theirs = rng.sample(range(BLOCKS), 20), rng.sample(range(BLOCKS), 20)
    return [n * BLOCK for n in mine], [n * BLOCK for n in theirs], [BLOCK] * 20


def handshake(local: Worker, remote: RemoteWorker) -> str:
    """The handshake runs on a thread of its own, sessions are made on another."""
    with ThreadPoolExecutor(1) as pool:
        key = pool.submit(local.handshake, remote.call("metadata")).result(20)
    remote.call("handshake", local.metadata())
    return key


def test_write_mode(local: Worker, remote: RemoteWorker) -> None:
    key = handshake(local, remote)
    assert key.startswith("consumer:127.0.0.1:")
    table = block_table(1)
    writer = threading.Thread(target=local.write_layers, args=(key, *table))
    writer.start()
    writer.join(30)
    assert not writer.is_alive()
    contents = remote.call("contents")
    for layer in range(LAYERS - 1):
        expected = bytearray(layer_content("consumer", layer))
        source = layer_content("producer", layer)
        for at, to, size in zip(*table, strict=True):
            expected[to : to + size] = source[at : at + size]
        assert contents[layer] == expected


def test_read_mode(local: Worker, remote: RemoteWorker) -> None:
    key = handshake(local, remote)
    for seed in range(5):
        table = block_table(seed)
        before = local.contents()
        local.read_layers(key, *table)
        for layer, content in enumerate(local.contents()):
            expected = bytearray(before[layer])
            source = layer_content("consumer", layer % (LAYERS - 1))
            for at, to, size in zip(*table, strict=True):
                expected[at : at + size] = source[to : to + size]
            assert content == expected


def test_scheduler_side_only_imports() -> None:
    from mori.io import BackendType, IOEngine, IOEngineConfig

    assert all((BackendType, IOEngine, IOEngineConfig))
