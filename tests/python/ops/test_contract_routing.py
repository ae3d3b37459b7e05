# SPDX-License-Identifier: MIT
"""Routing handles: a dispatch that is repeated, and combines that name the dispatch they belong to."""

from __future__ import annotations

import pytest
from small_op import everywhere, halves, ids, new_op, rows

from arrays import take, type_name
from mori.ops.dispatch_combine import EpDispatchRoutingHandle
from ranks import Rank, on_ranks

KERNELS = ["IntraNode", "InterNodeV1"]


@pytest.mark.parametrize("kernel", KERNELS)
@on_ranks(2)
def test_a_sixth_result_repeats_the_dispatch_with_the_same_slots(rank: Rank, kernel: str, kind: str) -> None:
    op = new_op(rank, kernel=kernel)
    choice = everywhere(rank, 3, kind)
    *_, handle = op.dispatch(rows(rank, 3, kind), halves(3, kind), None, choice, return_routing=True)
    assert isinstance(handle, EpDispatchRoutingHandle)
    first = take(op.get_dispatch_src_token_pos()).tolist()
    out, _, _, indices, total = op.dispatch(rows(rank, 3, kind) + 100, None, None, choice, routing=handle)
    assert take(out)[:6, 0].tolist() == [100, 101, 102, 110, 111, 112]
    assert take(indices)[:6].tolist() == [[0, 3]] * 6
    assert int(total[0]) == 6
    assert take(op.get_dispatch_src_token_pos()).tolist() == first
    sums, _ = op.combine(out, None, choice, routing=handle)
    assert take(sums)[:3, 0].tolist() == [2 * (100 + 10 * rank.me + token) for token in range(3)]
    assert int(total[0]) == 6  # a combine with a handle leaves it


@on_ranks(2)
def test_another_dispatch_may_happen_before_the_combine(rank: Rank) -> None:
    op = new_op(rank)
    out, *_, handle = op.dispatch(rows(rank, 3), None, None, everywhere(rank), return_routing=True)
    kept = out.copy()
    choice = ids((2 * (1 - rank.me), -1))  # one token, to the other rank
    other, *_ = op.dispatch(rows(rank, 1), None, None, choice)
    assert other[0, 0] == 10 * (1 - rank.me)
    sums, _ = op.combine(kept, None, everywhere(rank), routing=handle)
    assert sums[:3, 0].tolist() == [2 * (10 * rank.me + token) for token in range(3)]


@on_ranks(2)
def test_a_handle_made_of_its_tensors_serves_as_well(rank: Rank, kind: str) -> None:
    op = new_op(rank)
    choice = everywhere(rank, 3, kind)
    *_, handle = op.dispatch(rows(rank, 3, kind), None, None, choice, return_routing=True)
    assert [type_name(tensor) for tensor in handle.tensors()] == ["int32"] * 5
    assert handle.cur_rank_num_token == 3
    again = EpDispatchRoutingHandle.from_tensors(handle.tensors(), handle.cur_rank_num_token)
    out, *_ = op.dispatch(rows(rank, 3, kind), None, None, choice, routing=again)
    assert take(op.combine(out, None, choice, routing=again)[0])[1, 0] == 2 * (10 * rank.me + 1)


@pytest.mark.parametrize("kernel", ["InterNode", "InterNodeV1LL", "AsyncLL", "IntraNodeLL"])
@on_ranks(2)
def test_other_kernels_have_none(rank: Rank, kernel: str) -> None:
    op = new_op(rank, kernel=kernel)
    with pytest.raises(NotImplementedError):
        op.dispatch(rows(rank, 3), None, None, everywhere(rank), return_routing=True)


@on_ranks(2)
def test_a_handle_cannot_be_used_and_made_in_one_call(rank: Rank) -> None:
    op = new_op(rank)
    *_, handle = op.dispatch(rows(rank, 3), None, None, everywhere(rank), return_routing=True)
    with pytest.raises(ValueError, match="routing"):
        op.dispatch(rows(rank, 3), None, None, everywhere(rank), routing=handle, return_routing=True)


@on_ranks(2)
def test_a_handle_is_for_as_many_tokens_as_it_was_made_with(rank: Rank) -> None:
    op = new_op(rank)
    out, *_, handle = op.dispatch(rows(rank, 3), None, None, everywhere(rank), return_routing=True)
    with pytest.raises(ValueError, match="2"):
        op.dispatch(rows(rank, 2), None, None, everywhere(rank, 2), routing=handle)
    with pytest.raises(ValueError, match="475"):
        op.combine(out, None, everywhere(rank, 2), routing=handle)
    op.combine(out, None, everywhere(rank), routing=handle)
