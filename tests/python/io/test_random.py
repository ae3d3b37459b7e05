# SPDX-License-Identifier: MIT
"""Random transfers against a model: plain bytearrays to which the same copies are applied."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gpus import Memory
from mori.cpp import TransferStatus
from mori.io import BackendType, IOEngine, RdmaBackendConfig
from support import Peer, Region, pattern, succeed

SIZES = [1, 4096, 65536, 1 << 20]
ROUNDS = 40


class Model:
    """Regions of two engines, what they should hold, and one random transfer at a time between them."""

    def __init__(self, engine: IOEngine, peer: Peer, rng: random.Random, memory: Memory) -> None:
        self.engine, self.rng = engine, rng
        self.local = [Region(engine, pattern(size, n), memory) for n, size in enumerate(SIZES)]
        self.remote = [peer.register(pattern(size, 100 + n), memory) for n, size in enumerate(SIZES)]
        self.local_model = [bytearray(bytes(region)) for region in self.local]
        self.remote_model = [bytearray(pattern(size, 100 + n)) for n, size in enumerate(SIZES)]
        self.sessions = {
            (i, j): engine.create_session(self.local[i].desc, self.remote[j][1])
            for i in range(len(SIZES))
            for j in range(len(SIZES))
        }

    def entries(self, i: int, j: int, is_write: bool) -> list[tuple[int, int, int]]:
        """Return random blocks whose destinations do not overlap."""
        source, target = (SIZES[i], SIZES[j]) if is_write else (SIZES[j], SIZES[i])
        count = self.rng.choice([0, 1, 1, 2, 5, 40])
        cuts = sorted(self.rng.choices(range(target + 1), k=2 * count))
        blocks = []
        for to, end in zip(cuts[::2], cuts[1::2], strict=True):
            size = min(end - to, source)
            at = self.rng.randint(0, source - size)
            blocks.append((at, to, size) if is_write else (to, at, size))
        self.rng.shuffle(blocks)
        return blocks

    def apply(self, i: int, j: int, is_write: bool, blocks: list[tuple[int, int, int]]) -> None:
        ours, theirs = self.local_model[i], self.remote_model[j]
        before = bytes(ours), bytes(theirs)
        for lo, ro, size in blocks:
            if is_write:
                theirs[ro : ro + size] = before[0][lo : lo + size]
            else:
                ours[lo : lo + size] = before[1][ro : ro + size]

    def step(self) -> TransferStatus:
        """Submit a random transfer by a random call and apply it to the model."""
        rng, engine = self.rng, self.engine
        i, j = rng.randrange(len(SIZES)), rng.randrange(len(SIZES))
        is_write = rng.random() < 0.5
        blocks = self.entries(i, j, is_write)
        uid = engine.allocate_transfer_uid()
        session, local, remote = self.sessions[i, j], self.local[i].desc, self.remote[j][1]
        if len(blocks) == 1 and rng.random() < 0.5:
            [(lo, ro, size)] = blocks
            if rng.random() < 0.5:
                status = (session.write if is_write else session.read)(lo, ro, size, uid)
            else:
                status = (engine.write if is_write else engine.read)(local, lo, remote, ro, size, uid)
        else:
            lists = [[block[n] for block in blocks] for n in range(3)]
            if rng.random() < 0.5:
                status = (session.batch_write if is_write else session.batch_read)(*lists, uid)
            else:
                batch = engine.batch_write if is_write else engine.batch_read
                [status] = batch([local], [lists[0]], [remote], [lists[1]], [lists[2]], [uid])
        self.apply(i, j, is_write, blocks)
        return status

    def check(self, peer: Peer) -> None:
        for region, model in zip(self.local, self.local_model, strict=True):
            assert bytes(region) == model
        for (index, _), model in zip(self.remote, self.remote_model, strict=True):
            assert peer.content(index) == model


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "config",
    [{}, {"qp_per_transfer": 4, "enable_transfer_chunking": True, "chunk_bytes": 4096}],
    ids=["plain", "chunked"],
)
def test_one_after_another(
    memory: Memory,
    make_engine: Callable[..., IOEngine],
    make_peer: Callable[..., Peer],
    backend: BackendType,
    config: dict[str, object],
    seed: int,
) -> None:
    engine = make_engine("here", backend, RdmaBackendConfig(**config))
    peer = make_peer("there", backend, **config)
    peer.meet(engine)
    model = Model(engine, peer, random.Random(seed), memory)
    for n in range(ROUNDS):
        succeed(model.step())
        if n % 20 == 19:
            model.check(peer)
