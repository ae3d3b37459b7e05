# SPDX-License-Identifier: MIT
"""SGLang's prefill side sending to a decode side in another process."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from sglang_calls import LAYERS, PAGE, PAGES, Manager

from gpus import Memory
from mori.io import StatusCode


def serve(pipe: Connection, memory: Memory) -> None:
    manager = Manager("decode", memory)
    while True:
        try:
            name, args = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(manager, name)(*args))


class Decode:
    def __init__(self, memory: Memory) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, memory), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, name: str, *args: Any) -> Any:
        self.pipe.send((name, args))
        assert self.pipe.poll(30), name
        return self.pipe.recv()


@pytest.fixture
def decode(memory: Memory) -> Iterator[Decode]:
    side = Decode(memory)
    yield side
    side.pipe.close()
    side.process.join(10)
    if side.process.is_alive():
        side.process.kill()


@pytest.fixture
def prefill(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.setenv("MORI_RDMA_DEVICES", "")
    manager = Manager("prefill", memory, devices="mlx5_0,mlx5_1")
    yield manager
    manager.engine.close()


def test_request(prefill: Manager, decode: Decode) -> None:
    registration = decode.call("registration")
    assert prefill.add_peer(registration).startswith("io-decode-")
    before, _ = decode.call("contents")
    rng = random.Random(5)
    pages, to_pages = rng.sample(range(PAGES), 200), rng.sample(range(PAGES), 200)
    assert prefill.send_all(pages, to_pages) == [(StatusCode.SUCCESS, "")] * 8

    pool, aux = decode.call("contents")
    source, expected = bytes(prefill.pool), bytearray(before)
    for layer in range(LAYERS):
        base = layer * PAGES * PAGE
        for page, to in zip(pages, to_pages, strict=True):
            expected[base + to * PAGE : base + (to + 1) * PAGE] = source[base + page * PAGE : base + (page + 1) * PAGE]
    assert pool == expected
    assert aux == [bytes(buffer) for buffer in prefill.aux]


def test_decode_dies(prefill: Manager, decode: Decode) -> None:
    key = prefill.add_peer(decode.call("registration"))
    pages = list(range(PAGES))
    assert prefill.wait(prefill.send_chunk(pages, pages)) == (StatusCode.SUCCESS, "")
    decode.process.kill()
    decode.process.join(10)

    # Submission may raise or fail the status; both mark the request as failed.
    try:
        rc, reason = prefill.wait(prefill.send_chunk(pages, pages))
    except Exception as err:
        rc, reason = StatusCode.ERR_RDMA_OP, str(err)
    assert rc != StatusCode.SUCCESS
    assert key in reason


def test_fabric_pool_is_refused_clearly() -> None:
    from mori.io import make_fabric_mem_pool

    with pytest.raises(FileNotFoundError, match="fabric"):
        make_fabric_mem_pool()
