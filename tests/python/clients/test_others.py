# SPDX-License-Identifier: MIT
"""What other programs do differently from vLLM and SGLang."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mori.io import (
    BackendType,
    FabricBackendConfig,
    IOEngine,
    IOEngineConfig,
    MemoryLocationType,
    PollCqMode,
    RdmaBackendConfig,
)
from mori.tensor_utils import buffer_span
from support import Peer, pattern

CHUNK = 1 << 16


def test_atom(make_peer: Callable[..., Peer]) -> None:
    """Memory registered in chunks, attributes set after construction, a plain Wait on each status."""
    engine = IOEngine("atom", IOEngineConfig("127.0.0.1", 0))
    config = RdmaBackendConfig(2, -1, 2, PollCqMode.POLLING, False)
    config.max_send_wr, config.max_cqe_num, config.max_msg_sge = 4096, 8192, 2
    engine.create_backend(BackendType.RDMA, config)
    peer = make_peer("target")
    peer.meet(engine)

    pool = bytearray(pattern(4 * CHUNK))
    base = buffer_span(pool).ptr
    chunks = [engine.register_memory(base + n * CHUNK, CHUNK, -1, MemoryLocationType.CPU) for n in range(4)]
    targets = [peer.register(CHUNK) for _ in chunks]
    sessions = [engine.create_session(chunk, target) for chunk, (_, target) in zip(chunks, targets, strict=True)]
    statuses = [
        session.batch_write([0, CHUNK // 2], [0, CHUNK // 2], [CHUNK // 2] * 2, engine.allocate_transfer_uid())
        for session in sessions
    ]
    for status in statuses:
        status.Wait()
        assert status.Succeeded(), f"{status.Code()}: {status.Message()}"
    assert b"".join(peer.content(index) for index, _ in targets) == pool
    engine.close()


def test_backend_without_config() -> None:
    with IOEngine("plain", IOEngineConfig("127.0.0.1", 0)) as engine:
        engine.create_backend(BackendType.RDMA)
        assert engine.get_engine_desc().port > 0


def test_fabric_config() -> None:
    config = FabricBackendConfig()
    config.num_streams, config.num_events = 8, 16
    engine = IOEngine("fabric", IOEngineConfig("127.0.0.1", 0))
    with pytest.raises(RuntimeError, match="FABRIC"):
        engine.create_backend(BackendType.FABRIC, config)
    engine.close()
