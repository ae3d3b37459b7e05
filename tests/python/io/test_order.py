# SPDX-License-Identifier: MIT
"""Transfers to one peer succeed in the order of their submission; vLLM's READ mode looks at the last one only."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gpus import Memory
from mori.cpp import TransferStatus
from mori.io import BackendType, IOEngine
from support import Peer, Region, eventually, pattern, succeed


def assert_done_in_order(statuses: list[TransferStatus]) -> None:
    """Watch the statuses until all are done; at no moment may a later one be done before an earlier one."""

    def look() -> bool:
        # Read from the last to the first: what was done when a later one was seen done must be done now.
        done = [status.Succeeded() for status in reversed(statuses)][::-1]
        assert not any(status.Failed() for status in statuses)
        assert done == sorted(done, reverse=True), f"done out of order: {done}"
        return all(done)

    eventually(look)


@pytest.mark.parametrize("is_write", [True, False], ids=["write", "read"])
@pytest.mark.parametrize("qps", [1, 4])
def test_across_sessions(
    memory: Memory,
    make_engine: Callable[..., IOEngine],
    make_peer: Callable[..., Peer],
    backend: BackendType,
    is_write: bool,
    qps: int,
) -> None:
    from mori.io import RdmaBackendConfig

    engine = make_engine("here", backend, RdmaBackendConfig(qp_per_transfer=qps))
    peer = make_peer("there", backend, qp_per_transfer=qps)
    peer.meet(engine)
    # Large first, small last: without ordering, the small ones overtake.
    sizes = [8 << 20, 64, 2 << 20, 8, 1 << 20, 4096, 16, 8]
    pairs = [(Region(engine, size, memory), peer.register(size, memory)[1]) for size in sizes]
    sessions = [engine.create_session(region.desc, remote) for region, remote in pairs]
    for _ in range(3):
        calls = [session.write if is_write else session.read for session in sessions]
        uids = [engine.allocate_transfer_uid() for _ in sizes]
        assert_done_in_order([call(0, 0, size, uid) for call, size, uid in zip(calls, sizes, uids, strict=True)])


def test_batches_and_singles_mixed(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    size = 4 << 20
    here, there = Region(left, size, memory), Region(right, size, memory)
    session = left.create_session(here.desc, there.desc)
    rng = random.Random(11)
    offs = [n * 8192 for n in range(size // 8192)]
    rng.shuffle(offs)
    statuses: list[TransferStatus] = []
    for uid in range(40):
        kind = rng.randrange(4)
        if kind == 0:
            statuses.append(session.batch_write(offs, offs, [4096] * len(offs), uid))
        elif kind == 1:
            statuses.append(session.read(0, 0, 8, uid))
        elif kind == 2:
            statuses.append(left.write(here.desc, 0, there.desc, 0, 1 << 20, uid))
        else:
            statuses.append(session.batch_read([0], [0], [64], uid))
    assert_done_in_order(statuses)


def test_the_last_of_many_layers(
    memory: Memory, make_engine: Callable[..., IOEngine], make_peer: Callable[..., Peer], backend: BackendType
) -> None:
    engine, peer = make_engine("decode", backend), make_peer("prefill", backend)
    peer.meet(engine)
    layers = []
    for n in range(16):
        content = pattern(256 << 10, n)
        layers.append((content, Region(engine, len(content), memory), peer.register(content, memory)[1]))
    sessions = [engine.create_session(region.desc, remote) for _, region, remote in layers]
    offs = list(range(0, 256 << 10, 4096))
    for session in sessions:
        last = session.batch_read(offs, offs, [4096] * len(offs), engine.allocate_transfer_uid())
    succeed(last)
    for content, region, _ in layers:
        assert bytes(region) == content
