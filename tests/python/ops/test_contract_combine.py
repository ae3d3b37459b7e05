# SPDX-License-Identifier: MIT
"""What combine takes, refuses and returns."""

from __future__ import annotations

import numpy as np
import pytest
from small_op import HIDDEN, TOKENS, TOPK, everywhere, halves, ids, new_op, rows

from arrays import DTYPES, address, take
from ranks import Rank, on_ranks


@on_ranks(2)
def test_it_returns_room_for_all_tokens_a_rank_may_send(rank: Rank, kind: str) -> None:
    op = new_op(rank)
    out, weights, *_ = op.dispatch(rows(rank, 3, kind), halves(3, kind), None, everywhere(rank, 3, kind))
    sums, sum_weights = op.combine(out, weights, everywhere(rank, 3, kind))
    assert type(sums) is type(out)
    assert (tuple(sums.shape), tuple(sum_weights.shape)) == ((TOKENS, HIDDEN), (TOKENS, TOPK))
    assert take(sums)[:3, 0].tolist() == [2 * (10 * rank.me + token) for token in range(3)]
    assert take(sum_weights)[:3].tolist() == [[1, 1]] * 3  # each half, from two ranks


@on_ranks(2)
def test_no_weights_or_empty_weights_give_none(rank: Rank) -> None:
    op = new_op(rank)
    for nothing in (None, np.zeros((0, TOPK), np.float32), np.zeros(0, np.float32)):
        out, *_ = op.dispatch(rows(rank, 3), halves(3), None, everywhere(rank))
        assert op.combine(out, nothing, everywhere(rank))[1] is None


@on_ranks(2)
def test_the_element_type_may_differ_from_that_of_dispatch(rank: Rank) -> None:
    op = new_op(rank, "float8_e4m3fn")
    out, *_, total = op.dispatch(rows(rank, 3, dtype="float8_e4m3fn"), None, None, everywhere(rank))
    outputs = out[: int(total[0])].astype(DTYPES["bfloat16"])
    sums, _ = op.combine(outputs, None, everywhere(rank))
    assert sums.dtype == DTYPES["bfloat16"]
    assert sums[:3, 0].tolist() == [2 * (10 * rank.me + token) for token in range(3)]


@on_ranks(2)
def test_tokens_that_went_nowhere_give_zeros(rank: Rank) -> None:
    op = new_op(rank)
    for choice in (everywhere(rank, 2), ids((-1, -1), (9, 4))):
        out, *_ = op.dispatch(rows(rank, 2), None, None, choice)
        sums, _ = op.combine(out, None, choice)
    assert sums[:2].tolist() == [[0] * HIDDEN] * 2


@on_ranks(2)
def test_another_number_of_tokens_than_dispatched_is_an_error_that_names_issue_475(rank: Rank) -> None:
    op = new_op(rank)
    out, *_ = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    with pytest.raises(ValueError, match="475"):
        op.combine(out, None, everywhere(rank, 2))
    assert op.combine(out, None, everywhere(rank))[0][1, 0] == 2 * (10 * rank.me + 1)


@on_ranks(2)
def test_fewer_rows_than_received_are_an_error(rank: Rank) -> None:
    op = new_op(rank)
    out, *_ = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    with pytest.raises(ValueError, match="6"):
        op.combine(out[:5], None, everywhere(rank))
    op.combine(out, None, everywhere(rank))


@on_ranks(2)
def test_impossible_arguments_are_refused_and_harm_nothing(rank: Rank) -> None:
    op = new_op(rank)
    out, weights, *_ = op.dispatch(rows(rank, 3), halves(3), None, everywhere(rank))
    good = {"input": out, "weights": weights, "indices": everywhere(rank)}
    for wrong in (
        {"input": out[:, ::2]},  # not contiguous
        {"input": out[0]},
        {"input": np.zeros((8, HIDDEN + 1), np.float32)},
        {"input": None},
        {"input": out.astype(np.float16)},
        {"weights": weights[:5]},
        {"weights": np.ones((8, TOPK + 1), np.float32)},
        {"weights": weights.astype(np.float64)},
        {"indices": everywhere(rank).astype(np.int64)},
        {"indices": None},
    ):
        with pytest.raises((ValueError, TypeError, KeyError)):
            op.combine(**{**good, **wrong})
    sums, _ = op.combine(**good)
    assert sums[:3, 0].tolist() == [2 * (10 * rank.me + token) for token in range(3)]


@on_ranks(2)
def test_rows_may_have_another_length_than_those_dispatched(rank: Rank) -> None:
    op = new_op(rank)
    out, *_ = op.dispatch(np.ascontiguousarray(rows(rank, 3)[:, :4]), None, None, everywhere(rank))
    sums, _ = op.combine(np.repeat(out, 2, axis=1), None, everywhere(rank))
    assert sums.shape == (TOKENS, HIDDEN)
    assert sums[2].tolist() == [2 * (10 * rank.me + 2)] * HIDDEN


@on_ranks(2)
def test_before_any_dispatch_it_is_an_error(rank: Rank) -> None:
    op = new_op(rank)
    with pytest.raises((ValueError, RuntimeError, AssertionError), match="dispatch"):
        op.combine(rows(rank, 8), None, everywhere(rank))


@on_ranks(2)
def test_it_sets_the_number_of_received_rows_to_zero(rank: Rank) -> None:
    op = new_op(rank)
    out, *_, total = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    assert int(total[0]) == 6
    assert op.get_dispatch_src_token_pos().tolist() == [0, 1, 2, 8, 9, 10]  # ranks are 2 x 4 apart
    op.combine(out, None, everywhere(rank))
    assert int(total[0]) == 0
    assert len(op.get_dispatch_src_token_pos()) == 0


@on_ranks(2)
def test_reset_is_taken_and_changes_nothing(rank: Rank) -> None:
    op = new_op(rank)
    out, *_ = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    sums, _ = op.combine(out, None, everywhere(rank), call_reset=True)
    assert sums[2, 0] == 2 * (10 * rank.me + 2)
    assert op.reset() is None


@on_ranks(2)
def test_the_registered_buffer_is_summed_in_place(rank: Rank, kind: str) -> None:
    op = new_op(rank, use_external_inp_buf=False)
    _, *_, total = op.dispatch(rows(rank, 3, kind), None, None, everywhere(rank, 3, kind))
    dtype = rows(rank, 1, kind).dtype
    buffer = op.get_registered_combine_input_buffer(dtype, HIDDEN)
    assert tuple(buffer.shape) == (8, HIDDEN)
    assert address(op.get_registered_combine_input_buffer(dtype)) == address(buffer)
    buffer[: int(total[0])] = rank.me + 1
    sums, _ = op.combine(buffer, None, everywhere(rank, 3, kind))
    assert take(sums)[:3, 0].tolist() == [3, 3, 3]  # 1 of rank 0 and 2 of rank 1


@on_ranks(2)
def test_a_call_may_choose_the_buffer_against_the_configuration(rank: Rank) -> None:
    op = new_op(rank)
    out, *_ = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    op.get_registered_combine_input_buffer(np.float32)[:6] = 5
    assert op.combine(out, None, everywhere(rank), use_external_inp_buf=0)[0][0, 0] == 10
    out, *_ = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    out[:6] = 7
    assert op.combine(out, None, everywhere(rank), use_external_inp_buf=1)[0][0, 0] == 14
