# SPDX-License-Identifier: MIT
"""The limit on transfers that are pending: what it does, and that each call that posts says so."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from mori.io import BackendType, IOEngine, IOEngineSession, StatusCode
from support import Peer, Region, new_engine, succeed

SIZE = 16 << 20


def test_a_call_beyond_the_limit_waits_without_the_gil(
    make_peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MORI_IO_MAX_PENDING", "2")
    peer = make_peer("there", BackendType.TCP)
    with new_engine("here", BackendType.TCP) as engine:
        peer.meet(engine)
        local = Region(engine, SIZE)
        session = engine.create_session(local.desc, peer.register(SIZE)[1])
        assert session is not None
        succeed(session.write(0, 0, 8, 0))
        peer.pause()
        pending = [session.write(0, 0, SIZE, uid) for uid in (1, 2)]
        ticks = 0
        stop = threading.Event()

        def tick() -> None:
            nonlocal ticks
            while not stop.wait(0.01):
                ticks += 1

        ticking = threading.Thread(target=tick)
        ticking.start()
        before = ticks
        refused = session.batch_write([0], [0], [8], 3, deadline_ms=300)
        after = ticks
        stop.set()
        ticking.join()
        assert refused.Code() == StatusCode.ERR_BAD_STATE
        assert "MORI_IO_MAX_PENDING" in refused.Message()
        assert after > before, "nobody else ran while the call waited"
        peer.resume()
        for status in pending:
            succeed(status)
        succeed(session.write(0, 0, 8, 4))


@pytest.mark.parametrize("of", [IOEngine, IOEngineSession])
@pytest.mark.parametrize("name", ["read", "write", "batch_read", "batch_write"])
def test_calls_that_post_describe_the_limit(of: type, name: str) -> None:
    assert "MORI_IO_MAX_PENDING" in (getattr(of, name).__doc__ or "")
