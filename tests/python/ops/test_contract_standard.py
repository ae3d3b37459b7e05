# SPDX-License-Identifier: MIT
"""The standard-MoE form, in which the rows of each expert lie together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_op import EXPERTS, HIDDEN, TOKENS, TOPK, ids, new_op, rows

import reference as ref
from arrays import Array, make, take, type_name
from ranks import Rank, on_ranks

WORLD = 2
CONFIG = ref.Config(WORLD, EXPERTS, TOPK, TOKENS)


def sent_by(rank: int) -> ref.Tokens:
    rng = np.random.default_rng(rank)
    indices = np.array([(0, 3), (1, 0), (2, 3), (-1, 2 * rank)][: 4 - rank], np.int32)
    # Eighths and small numbers: sums of their products are exact in any order.
    weights = rng.integers(1, 8, indices.shape).astype(np.float32) / 8
    values = rng.integers(0, 16, (len(indices), HIDDEN)).astype(np.float32)
    return ref.Tokens(values, indices, weights)


SENT = [sent_by(rank) for rank in range(WORLD)]
ROWS = ref.dispatch(CONFIG, SENT)
PACKED = [ref.pack(CONFIG, rank, ROWS[rank]) for rank in range(WORLD)]


def outputs(here: int) -> Array:
    """What the experts make: expert e multiplies by e + 1."""
    factors = np.arange(here * EXPERTS, (here + 1) * EXPERTS, dtype=np.float32) + 1
    return PACKED[here].x * factors[:, None, None]


def expected(here: int) -> Array:
    summed = [ref.unpack(CONFIG, rank, ROWS[rank], PACKED[rank], outputs(rank)) for rank in range(WORLD)]
    return ref.combine(CONFIG, SENT, ROWS, summed)[here][0]


def check_packed(here: int, packed: Any) -> None:
    x, count, source, layout_range = packed
    room = WORLD * TOKENS
    assert (tuple(x.shape), type_name(x)) == ((EXPERTS, room, HIDDEN), "float32")
    assert (tuple(count.shape), type_name(count)) == ((EXPERTS,), "int32")
    assert (tuple(source.shape), type_name(source)) == ((EXPERTS, room), "int32")
    assert (tuple(layout_range.shape), type_name(layout_range)) == ((0,), "int64")
    want = PACKED[here]
    assert take(count).tolist() == want.count.tolist()
    for e, n in enumerate(want.count):
        assert take(x)[e, :n].tolist() == want.x[e, :n].tolist()


def arguments(here: int, kind: Any) -> tuple[Any, ...]:
    mine = SENT[here]
    return make(kind, mine.input), make(kind, mine.weights), None, make(kind, mine.indices)


@pytest.mark.parametrize("kernel", ["IntraNode", "InterNodeV1LL"])
@on_ranks(WORLD)
def test_dispatch_and_combine_in_that_form(rank: Rank, kernel: str, kind: str) -> None:
    op = new_op(rank, kernel=kernel)
    for _ in range(2):
        given = arguments(rank.me, kind)
        packed = op.dispatch_standard_moe(*given, 80, 0, 8)
        check_packed(rank.me, packed)
        out, none = op.combine_standard_moe(make(kind, outputs(rank.me)), given[1], given[3], 80, 0, 8, False)
        assert none is None
        assert take(out)[: len(SENT[rank.me])].tolist() == expected(rank.me).tolist()


@on_ranks(WORLD)
def test_what_dispatch_returned_can_be_brought_into_that_form_and_back(rank: Rank, kind: str) -> None:
    op = new_op(rank)
    given = arguments(rank.me, kind)
    out, _, _, indices, _ = op.dispatch(*given)
    packed = op.convert_dispatch_output(out, indices, 80, 8)
    check_packed(rank.me, packed)
    summed = op.convert_combine_input(make(kind, outputs(rank.me)), packed[2], packed[3])
    assert tuple(summed.shape) == (WORLD * TOKENS, HIDDEN)
    want = ref.unpack(CONFIG, rank.me, ROWS[rank.me], PACKED[rank.me], outputs(rank.me))
    assert take(summed)[: len(want)].tolist() == want.tolist()
    sums, _ = op.combine(summed, None, given[3])
    assert take(sums)[: len(SENT[rank.me])].tolist() == expected(rank.me).tolist()


@pytest.mark.parametrize("kernel", ["InterNode", "InterNodeV1", "AsyncLL", "IntraNodeLL"])
@on_ranks(WORLD)
def test_other_kernels_do_not_have_it(rank: Rank, kernel: str) -> None:
    op = new_op(rank, kernel=kernel)
    with pytest.raises((ValueError, NotImplementedError, RuntimeError), match="IntraNode"):
        op.dispatch_standard_moe(rows(rank, 1), None, None, ids((0, 1)))
