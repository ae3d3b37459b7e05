# SPDX-License-Identifier: MIT
"""Dispatch and combine in two phases, which AsyncLL has."""

from __future__ import annotations

import pytest
from small_op import everywhere, halves, ids, new_op, rows

from arrays import address, take
from ranks import Rank, on_ranks


@on_ranks(2)
def test_send_returns_what_recv_completes(rank: Rank, kind: str) -> None:
    op = new_op(rank, kernel="AsyncLL")
    choice = everywhere(rank, 3, kind)
    for _ in range(3):
        out, weights, scales, indices, total = op.dispatch_send(rows(rank, 3, kind), halves(3, kind), None, choice)
        assert op.dispatch_recv() is None
        assert scales is None
        assert take(out)[: int(total[0]), 0].tolist() == [0, 1, 2, 10, 11, 12]
        assert take(indices)[:6].tolist() == [[0, 3]] * 6
        sums, sum_weights = op.combine_send(out, weights, choice)
        assert op.combine_recv() is None
        assert take(sums)[:3, 0].tolist() == [2 * (10 * rank.me + token) for token in range(3)]
        assert take(sum_weights)[:3].tolist() == [[1, 1]] * 3


@on_ranks(2)
def test_work_may_be_done_between_send_and_recv(rank: Rank) -> None:
    op = new_op(rank, kernel="AsyncLL")
    sent = rows(rank, 3)
    out, *_ = op.dispatch_send(sent, None, None, everywhere(rank))
    del sent  # the op keeps it until recv
    junk = [rows(rank, 3) - 1000 for _ in range(100)]
    op.dispatch_recv()
    assert out[:6, 0].tolist() == [0, 1, 2, 10, 11, 12]
    sums, none = op.combine_send(out + 0, None, everywhere(rank))
    junk += [rows(rank, 3) - 1000 for _ in range(100)]
    op.combine_recv()
    assert none is None
    assert sums[:3, 0].tolist() == [2 * (10 * rank.me + token) for token in range(3)]


@on_ranks(2)
def test_one_call_does_both_phases_too(rank: Rank) -> None:
    op = new_op(rank, kernel="AsyncLL")
    out, *_, total = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    if int(total[0]) != 6:  # dispatch is dispatch_send for this kernel
        op.dispatch_recv()
    assert int(total[0]) == 6
    sums, _ = op.combine_send(out, None, everywhere(rank))
    op.combine_recv()
    assert sums[0, 0] == 2 * 10 * rank.me


@on_ranks(2)
def test_results_lie_where_they_lay_the_last_time(rank: Rank) -> None:
    op = new_op(rank, kernel="AsyncLL")
    seen = []
    for n in (3, 1):
        received = op.dispatch_send(rows(rank, n), halves(n), None, everywhere(rank, n))
        op.dispatch_recv()
        sums = op.combine_send(received[0], received[1], everywhere(rank, n))
        op.combine_recv()
        seen.append([address(a) for a in (*received, *sums) if a is not None])
    assert seen[0] == seen[1]


@on_ranks(2)
def test_experts_are_counted_by_recv(rank: Rank) -> None:
    op = new_op(rank, kernel="AsyncLL")
    choice = ids((0, 1), (1, 1), (3, -1))
    op.dispatch_send(rows(rank, 3), None, None, choice, call_local_expert_count=True)
    op.dispatch_recv(call_local_expert_count=True)
    assert op.local_expert_count.tolist() == [[2, 6], [0, 2]][rank.me]


@on_ranks(2)
def test_experts_are_not_counted_by_send(rank: Rank) -> None:
    op = new_op(rank, kernel="AsyncLL")
    op.local_expert_count[:] = 77
    op.dispatch_send(rows(rank, 3), None, None, everywhere(rank), call_local_expert_count=True)
    op.dispatch_recv()
    assert op.local_expert_count.tolist() == [77, 77]


@pytest.mark.parametrize("kernel", ["IntraNode", "InterNode", "InterNodeV1", "InterNodeV1LL", "IntraNodeLL"])
@on_ranks(2)
def test_other_kernels_have_no_phases(rank: Rank, kernel: str) -> None:
    op = new_op(rank, kernel=kernel)
    with pytest.raises(ValueError, match="AsyncLL"):
        op.dispatch_recv()
    with pytest.raises(ValueError, match="AsyncLL"):
        op.combine_recv()


@on_ranks(2)
def test_recv_before_send_is_an_assertion_error(rank: Rank) -> None:
    op = new_op(rank, kernel="AsyncLL")
    with pytest.raises(AssertionError):
        op.dispatch_recv()
    with pytest.raises(AssertionError):
        op.combine_recv()
    out, *_ = op.dispatch_send(rows(rank, 3), None, None, everywhere(rank))
    op.dispatch_recv()
    with pytest.raises(AssertionError):
        op.dispatch_recv()
    op.combine_send(out, None, everywhere(rank))
    op.combine_recv()
    with pytest.raises(AssertionError):
        op.combine_recv()
