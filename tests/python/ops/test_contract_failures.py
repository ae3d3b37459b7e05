# SPDX-License-Identifier: MIT
"""Ranks that exceed the cap, do not arrive, or die: the others report the rank and do not hang."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

import numpy as np
import pytest
from small_op import HIDDEN, everywhere, ids, new_op, rows

from ranks import NoAnswer, Rank, Ranks

DEADLINE = 3.0  # seconds that a call of an op waits


def one_call_less(rank: Rank, lazy: int, call: str) -> None:
    """All ranks call alike, but for one that leaves out its second dispatch or combine."""
    os.environ["MORI_EP_TIMEOUT_MS"] = str(int(DEADLINE * 1000))
    op = new_op(rank)
    out, *_ = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    op.combine(out, None, everywhere(rank))
    for present in ("dispatch", "combine"):
        if rank.me == lazy and call == present:
            time.sleep(2 * DEADLINE)
            return
        if present == "dispatch":
            op.dispatch(rows(rank, 3), None, None, everywhere(rank))
        else:
            op.combine(out, None, everywhere(rank))


def die_before(rank: Rank, victim: int, call: str) -> None:
    op = new_op(rank)
    out: Any = None
    for n in range(3):
        if (rank.me, n, call) == (victim, 2, "dispatch"):
            os.kill(os.getpid(), signal.SIGKILL)
        out, *_ = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
        if (rank.me, n, call) == (victim, 2, "combine"):
            os.kill(os.getpid(), signal.SIGKILL)
        op.combine(out, None, everywhere(rank))


@pytest.mark.parametrize("call", ["dispatch", "combine"])
def test_a_rank_that_calls_once_less_is_named_by_the_others_in_time(ranks: Ranks, call: str) -> None:
    outcomes = ranks.world(3).outcomes(one_call_less, 2, call, timeout=60)
    ranks.stop()
    assert outcomes[2].error is None
    for here in (0, 1):
        assert isinstance(outcomes[here].error, Exception), f"rank {here} went on"
        assert not isinstance(outcomes[here].error, NoAnswer), outcomes[here].text
        assert re.search(rf"{call} 2: .*(rank|come:) 2\b", str(outcomes[here].error))


@pytest.mark.parametrize("call", ["dispatch", "combine"])
def test_a_rank_that_dies_is_named_by_the_others_long_before_the_deadline(ranks: Ranks, call: str) -> None:
    outcomes = ranks.world(3).outcomes(die_before, 2, call, timeout=25)
    ranks.stop()
    assert isinstance(outcomes[2].error, NoAnswer)
    for here in (0, 1):
        assert isinstance(outcomes[here].error, Exception), f"rank {here} went on"
        assert not isinstance(outcomes[here].error, NoAnswer), outcomes[here].text
        assert re.search(r"(rank|PE) 2\b", str(outcomes[here].error))


def overfill(rank: Rank) -> tuple[str, list[float], int, list[list[float]]]:
    """Rank 2 brings more rows to rank 0 than there is room for; then all ranks do something harmless."""
    op = new_op(rank, max_total_recv_tokens=4)  # room for 6 rows
    choice = ids(*[(0, -1)] * 3)
    refused = ""
    try:
        op.dispatch(rows(rank, 3), None, None, choice)
    except Exception as err:
        refused = f"{type(err).__name__}: {err}"
    buffer = op.get_registered_combine_input_buffer(np.float32, HIDDEN)
    positions = op.get_dispatch_src_token_pos()
    buffer[:] = rank.me + 1
    sums, _ = op.combine(buffer, None, choice, use_external_inp_buf=0)
    first = sums[:3, 0].tolist()
    out, *_ = op.dispatch(rows(rank, 1), None, None, ids((0, 5)))
    again, _ = op.combine(out, None, ids((0, 5)))
    return refused, first, len(positions), again[:1].tolist()


def test_a_rank_that_brings_too_much_is_refused_and_all_go_on(ranks: Ranks) -> None:
    refused, sums, received, again = zip(*ranks.world(3).run(overfill), strict=True)
    assert [bool(r) for r in refused] == [False, False, True]
    assert "max_total_recv_tokens" in refused[2] or "6" in refused[2]
    assert sums == ([1, 1, 1], [1, 1, 1], [0, 0, 0])
    assert received == (6, 0, 0)
    assert again == tuple([[2.0 * 10 * rank] * HIDDEN] for rank in range(3))
