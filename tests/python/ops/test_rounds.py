# SPDX-License-Identifier: MIT
"""Many rounds through one op, in which ranks arrive at any time: no rank reads rows too early or too late."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from small_op import EXPERTS, HIDDEN, TOKENS, TOPK, new_op

from arrays import Array
from ranks import Rank, Ranks

ROUNDS = 150
KERNELS = {"IntraNode": False, "AsyncLL": True}


def choices(step: int, rank: int, world: int) -> Array:
    """The experts of a rank's tokens in one round; any rank can tell."""
    rng = np.random.default_rng([step, rank])
    return rng.integers(-1, EXPERTS * world, (rng.integers(TOKENS + 1), TOPK), np.int32)


def value(step: int, rank: int, token: int) -> int:
    return (31 * step + 7 * rank + token) % 97


def owners(ids: Array) -> set[int]:
    return {int(e) // EXPERTS for e in ids if e >= 0}


def sources(everybody: list[Array], here: int) -> list[tuple[int, int]]:
    """Rank and token of each row that a rank receives."""
    return [(r, t) for r, choice in enumerate(everybody) for t, ids in enumerate(choice) if here in owners(ids)]


def rounds(rank: Rank, kernel: str, seed: int) -> None:
    op, rng, split = new_op(rank, kernel=kernel), random.Random(seed + rank.me), KERNELS[kernel]
    buffer = op.get_registered_combine_input_buffer(np.float32)

    def loiter() -> None:
        if rng.random() < 0.3:
            time.sleep(rng.random() / 500)

    for step in range(ROUNDS):
        everybody = [choices(step, other, rank.size) for other in range(rank.size)]
        mine = everybody[rank.me]
        tokens = [value(step, rank.me, t) for t in range(len(mine))]
        sent = np.repeat(np.array(tokens, np.float32)[:, None], HIDDEN, 1)
        loiter()
        out, *_, total = (op.dispatch_send if split else op.dispatch)(sent, None, None, mine)
        if split:
            loiter()
            op.dispatch_recv()
        wanted = [value(step, *source) for source in sources(everybody, rank.me)]
        assert int(total[0]) == len(wanted)
        assert out[: len(wanted)].tolist() == [[v] * HIDDEN for v in wanted], step
        loiter()
        outputs = out[: len(wanted)] * (rank.me + 1)
        if split:
            sums, _ = op.combine_send(outputs, None, mine)
            loiter()
            op.combine_recv()
        elif step % 3:
            sums, _ = op.combine(outputs, None, mine)
        else:
            buffer[: len(wanted)] = outputs
            sums, _ = op.combine(buffer, None, mine, use_external_inp_buf=0)
        factors = [sum(d + 1 for d in owners(ids)) for ids in mine]
        assert sums[: len(mine), 0].tolist() == [v * f for v, f in zip(tokens, factors, strict=True)], step


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("world", "hosts"), [(2, 1), (4, 1), (8, 1), (2, 2), (4, 2)])
def test_rounds(ranks: Ranks, world: int, hosts: int, kernel: str) -> None:
    ranks.world(world, hosts).run(rounds, kernel, random.randrange(2**32), timeout=50)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("world", "hosts"), [(2, 2), (4, 2)])
def test_rounds_with_nics(nic_ranks: Ranks, world: int, hosts: int, kernel: str) -> None:
    nic_ranks.world(world, hosts).run(rounds, kernel, random.randrange(2**32), timeout=50)
