# SPDX-License-Identifier: MIT
"""How combine's rows may travel: what each quant_type needs, and how near the result comes."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import numpy as np
import pytest
from small_op import everywhere, ids, new_op, rows

import reference as ref
from arrays import DTYPES
from mori.ops.dispatch_combine import EpDispatchCombineQuantType
from ranks import Rank, on_ranks

BF16 = DTYPES["bfloat16"]


def largest_error(rank: Rank, hidden: int = 256, **changes: Any) -> float:
    """The largest error of any element in a combine of random numbers, relative to the element or 1/16."""
    op = new_op(rank, "bfloat16", hidden_dim=hidden, max_token_type_size=2, **changes)
    given = np.random.default_rng(rank.me).standard_normal((3, hidden), np.float32).astype(BF16)
    out, *_ = op.dispatch(given, None, None, everywhere(rank))
    sums, _ = op.combine(out, None, everywhere(rank))
    exact = 2 * given.astype(np.float32)
    return float((np.abs(sums[:3].astype(np.float32) - exact) / np.maximum(np.abs(exact), 1 / 16)).max())


@pytest.mark.parametrize("quant_type", ["none", " NONE", EpDispatchCombineQuantType.None_])
@on_ranks(2)
def test_without_it_sums_of_two_equal_rows_are_exact(rank: Rank, quant_type: Any) -> None:
    assert largest_error(rank, quant_type=quant_type) == 0


@pytest.mark.parametrize("quant_type", ["fp8_direct_cast", EpDispatchCombineQuantType.Fp8DirectCast])
@on_ranks(2)
def test_the_direct_cast_is_near_to_a_tenth(rank: Rank, quant_type: Any) -> None:
    assert 0 < largest_error(rank, quant_type=quant_type) < 0.1


@on_ranks(2)
def test_the_direct_cast_leaves_other_types_alone(rank: Rank) -> None:
    op = new_op(rank, quant_type="fp8_direct_cast")
    given = rows(rank, 3) + np.float32(1 / 3)
    out, *_ = op.dispatch(given, None, None, everywhere(rank))
    assert (op.combine(out, None, everywhere(rank))[0][:3] == 2 * given).all()


@pytest.mark.parametrize("kernel", ["IntraNode", "IntraNodeLL"])
@on_ranks(2)
def test_blocks_are_near_to_seven_hundredths(rank: Rank, kernel: str) -> None:
    assert 0 < largest_error(rank, kernel=kernel, quant_type="fp8_blockwise") < 0.07


@on_ranks(2)
def test_blocks_serve_in_two_phases_too(rank: Rank) -> None:
    op = new_op(rank, "bfloat16", kernel="AsyncLL", quant_type="fp8_blockwise")
    out, *_ = op.dispatch_send(rows(rank, 3, dtype="bfloat16"), None, None, everywhere(rank))
    op.dispatch_recv()
    sums, _ = op.combine_send(out, None, everywhere(rank))
    op.combine_recv()
    assert sums[:3, 0].astype(float).tolist() == pytest.approx([2 * (10 * rank.me + t) for t in range(3)], rel=0.07)


@on_ranks(2)
def test_more_blocks_keep_small_numbers_beside_large_ones(rank: Rank) -> None:
    op = new_op(rank, "bfloat16", hidden_dim=112, quant_type="fp8_blockwise")
    given = np.full((1, 112), 1e-3, np.float32).astype(BF16)
    given[0, ::28] = 1000  # 56 blocks of two elements: all but four of them hold small numbers only
    choice = everywhere(rank, 1)
    out, *_ = op.dispatch(given, None, None, choice)
    sums = op.combine(out, None, choice)[0][0].astype(float)
    assert sums[2:28].tolist() == pytest.approx([2e-3] * 26, rel=0.01)


@on_ranks(2)
def test_the_number_of_blocks_is_a_variable(rank: Rank) -> None:
    with mock.patch.dict(os.environ, {"MORI_FP8_COMBINE_SCALE_DIM": "4"}):
        op = new_op(rank, "bfloat16", hidden_dim=100, quant_type="fp8_blockwise")
    assert op._fp8_blockwise_combine_scale_dim == 4
    given = np.random.default_rng(rank.me).standard_normal((1, 100), np.float32).astype(BF16)
    choice = ids((2 * rank.me, -1))  # to itself
    out, *_ = op.dispatch(given, None, None, choice)
    sums, _ = op.combine(out, None, choice)
    assert sums[0].tolist() == ref.fp8_blockwise(given[0], blocks=4).astype(BF16).tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": "InterNode"},
        {"kernel": "InterNodeV1"},
        {"kernel": "InterNodeV1LL"},
        {"use_external_inp_buf": False},
        {"dtype": "float32"},
    ],
    ids=str,
)
@pytest.mark.parametrize("quant_type", ["fp8_blockwise", "fp4_blockwise"])
@on_ranks(2)
def test_blocks_need_bf16_an_ordinary_buffer_and_one_of_three_kernels(
    rank: Rank, quant_type: str, changes: dict[str, Any]
) -> None:
    dtype = changes.get("dtype", "bfloat16")

    def use() -> None:
        op = new_op(rank, **{"dtype": dtype, "quant_type": quant_type, **changes})
        out, *_ = op.dispatch(rows(rank, 3, dtype=dtype), None, None, everywhere(rank))
        op.combine(out, None, everywhere(rank))

    with pytest.raises(ValueError, match=quant_type):
        use()


@pytest.mark.parametrize("quant_type", ["fp8", "int8", ""])
@on_ranks(2)
def test_an_unknown_one_is_refused_when_the_op_is_made(rank: Rank, quant_type: str) -> None:
    with pytest.raises(ValueError, match="fp8_direct_cast"):
        new_op(rank, quant_type=quant_type)
