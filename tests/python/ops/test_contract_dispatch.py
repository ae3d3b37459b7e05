# SPDX-License-Identifier: MIT
"""What dispatch takes, refuses and returns."""

from __future__ import annotations

import numpy as np
import pytest
from small_op import HIDDEN, TOKENS, TOPK, everywhere, halves, new_op, rows

from arrays import address, make, take, type_name
from ranks import Rank, on_ranks


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float4_e2m1fn_x2"])
@on_ranks(2)
def test_it_returns_five_arrays_of_the_kind_it_was_given(rank: Rank, dtype: str, kind: str) -> None:
    if dtype == "float4_e2m1fn_x2" and kind == "numpy":
        return  # numpy has no packed float4
    op = new_op(rank, dtype, scale_dim=3, scale_type_size=4)
    scales = make(kind, np.full((3, 3), rank.me, np.float32))
    out, weights, out_scales, indices, total = op.dispatch(
        rows(rank, 3, kind, dtype), halves(3, kind), scales, everywhere(rank, 3, kind)
    )
    received = (out, weights, out_scales, indices, total)
    assert len({type(array) for array in received}) == 1
    assert [tuple(array.shape) for array in received] == [(8, HIDDEN), (8, TOPK), (8, 3), (8, TOPK), (1,)]
    assert [type_name(array) for array in received] == [dtype, "float32", "float32", "int32", "int32"]
    assert int(total[0]) == 6
    assert take(out_scales)[:6, 0].tolist() == [0, 0, 0, 1, 1, 1]


@on_ranks(2)
def test_weights_come_back_even_if_none_were_given_and_scales_do_not(rank: Rank) -> None:
    _, weights, scales, _, _ = new_op(rank).dispatch(rows(rank, 3), None, None, everywhere(rank))
    assert weights.shape == (8, TOPK)
    assert scales is None


@on_ranks(2)
def test_scales_are_ignored_where_the_configuration_has_none(rank: Rank) -> None:
    given = np.ones((3, 5), np.float32)
    assert new_op(rank).dispatch(rows(rank, 3), None, given, everywhere(rank))[2] is None


@on_ranks(2)
def test_scales_may_be_left_out_where_the_configuration_has_some(rank: Rank) -> None:
    op = new_op(rank, scale_dim=3, scale_type_size=4)
    assert op.dispatch(rows(rank, 3), None, None, everywhere(rank))[2] is None


@on_ranks(2)
def test_results_lie_where_they_lay_the_last_time(rank: Rank) -> None:
    op = new_op(rank, scale_dim=1, scale_type_size=4)
    seen = []
    for n in (3, 0, 4):
        received = op.dispatch(rows(rank, n), halves(n), np.ones((n, 1), np.float32), everywhere(rank, n))
        sums = op.combine(received[0], received[1], everywhere(rank, n))
        seen.append([address(array) for array in (*received, *sums)])
    assert seen[0] == seen[1] == seen[2]


@on_ranks(2)
def test_the_sixth_argument_by_position_is_a_launch_hint_and_any_value_is_fine(rank: Rank) -> None:
    op = new_op(rank)
    out, *_, total = op.dispatch(rows(rank, 3), halves(3), None, everywhere(rank), 80, 16)
    assert int(total[0]) == 6
    assert op.combine(out, None, everywhere(rank), 80, 16)[1] is None
    assert op.dispatch(rows(rank, 3), halves(3), None, everywhere(rank), -1, -7, 10**6)[4][0] == 6


@on_ranks(2)
def test_a_row_may_be_shorter_than_the_configuration_allows(rank: Rank) -> None:
    op = new_op(rank)
    out, *_ = op.dispatch(np.ascontiguousarray(rows(rank, 3)[:, :5]), None, None, everywhere(rank))
    assert out.shape == (8, 5)
    assert out[:6, 4].tolist() == [0, 1, 2, 10, 11, 12]
    assert op.combine(out, None, everywhere(rank))[0].shape == (TOKENS, 5)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "uint8"])
@on_ranks(2)
def test_other_element_types_are_a_key_error(rank: Rank, dtype: str, kind: str) -> None:
    wrong = np.zeros((3, HIDDEN), dtype)
    with pytest.raises(KeyError, match=dtype):
        new_op(rank).dispatch(make(kind, wrong), None, None, everywhere(rank, 3, kind))


@on_ranks(2)
def test_results_are_views_that_the_next_dispatch_writes_over(rank: Rank, kind: str) -> None:
    op = new_op(rank)
    choice = everywhere(rank, 3, kind)
    first = op.dispatch(rows(rank, 3, kind), halves(3, kind), None, choice)
    op.dispatch(rows(rank, 3, kind) + 50, halves(3, kind) * 3, None, choice)
    assert take(first[0])[:6, 0].tolist() == [50, 51, 52, 60, 61, 62]
    assert take(first[1])[:6].tolist() == [[1.5, 1.5]] * 6


@on_ranks(2)
def test_impossible_arguments_are_refused_and_harm_nothing(rank: Rank) -> None:
    op = new_op(rank, scale_dim=2, scale_type_size=4)
    fine = (rows(rank, 3), halves(3), np.ones((3, 2), np.float32), everywhere(rank))
    good = dict(zip(("input", "weights", "scales", "indices"), fine, strict=True))
    for wrong in (
        {"input": rows(rank, 3)[:, ::2]},  # not contiguous
        {"input": rows(rank, 3)[:2]},
        {"input": rows(rank, 3)[0]},
        {"input": np.zeros((3, HIDDEN + 1), np.float32)},
        {"input": None},
        {"weights": halves(2)},
        {"weights": np.ones((3, TOPK + 1), np.float32)},
        {"weights": np.ones((3, TOPK), np.float64)},
        {"scales": np.ones((3, 3), np.float32)},
        {"scales": np.ones((3, 2), np.float64)},
        {"indices": everywhere(rank).astype(np.int64)},
        {"indices": np.zeros((3, TOPK + 1), np.int32)},
        {"indices": np.zeros(3 * TOPK, np.int32)},
        {"indices": None},
    ):
        with pytest.raises((ValueError, TypeError)):
            op.dispatch(**{**good, **wrong})
    n = TOKENS + 1
    with pytest.raises(ValueError, match=str(n)):
        op.dispatch(rows(rank, n), halves(n), np.ones((n, 2), np.float32), everywhere(rank, n))
    assert int(op.dispatch(**good)[4][0]) == 6
