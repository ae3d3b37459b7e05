# SPDX-License-Identifier: MIT
"""The reference itself, on cases small enough to check by eye."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import reference as ref

# Two ranks; experts 0 and 1 live on rank 0, experts 2 and 3 on rank 1.
CONFIG = ref.Config(2, num_experts_per_rank=2, num_experts_per_token=2, max_num_inp_token_per_rank=4)


def tokens(*ids: tuple[int, int], first: float = 0.0) -> ref.Tokens:
    """Tokens of two elements: token n holds first + n twice, its weights are 0.25 and 0.75."""
    values = first + np.arange(len(ids), dtype=np.float32)
    return ref.Tokens(
        np.stack([values, values], 1),
        np.array(ids, np.int32).reshape(-1, 2),
        np.tile(np.array([0.25, 0.75], np.float32), (len(ids), 1)),
    )


BOTH = [tokens((0, 3), (1, 0), (2, 3)), tokens((1, 2), (3, -1), first=10)]


def test_an_expert_lives_on_its_rank_and_sentinels_nowhere() -> None:
    assert [ref.rank_of(CONFIG, e) for e in (-1, 0, 1, 2, 3, 4)] == [None, 0, 0, 1, 1, None]


def test_a_token_goes_once_to_each_rank_that_owns_one_of_its_experts() -> None:
    first, second = ref.dispatch(CONFIG, BOTH)
    assert first.source == [(0, 0), (0, 1), (1, 0)]
    assert second.source == [(0, 0), (0, 2), (1, 0), (1, 1)]


def test_rows_carry_all_ids_and_weights_of_their_token() -> None:
    here = ref.dispatch(CONFIG, BOTH)[1]
    assert here.input.tolist() == [[0, 0], [2, 2], [10, 10], [11, 11]]
    assert here.indices.tolist() == [[0, 3], [2, 3], [1, 2], [3, -1]]
    assert here.weights.tolist() == [[0.25, 0.75]] * 4
    assert here.scales is None


def test_rows_carry_the_scales_of_their_token() -> None:
    mine = [tokens((2, 0)), tokens((2, 2), (0, 1))]
    mine[0].scales, mine[1].scales = np.array([[1, 2]], np.float32), np.array([[3, 4], [5, 6]], np.float32)
    assert ref.dispatch(CONFIG, mine)[1].scales.tolist() == [[1, 2], [3, 4]]


def test_positions_stride_by_what_all_ranks_may_send() -> None:
    assert ref.dispatch(CONFIG, BOTH)[1].positions(CONFIG) == [0, 2, 8, 9]


def test_no_tokens_and_only_sentinels_are_fine() -> None:
    mine = [tokens(), tokens((-1, 4))]
    rows = ref.dispatch(CONFIG, mine)
    assert [len(r) for r in rows] == [0, 0]
    (empty, _), (zero, _) = ref.combine(CONFIG, mine, rows, [r.input for r in rows])
    assert empty.shape == (0, 2)
    assert zero.tolist() == [[0, 0]]


def test_the_local_expert_count_counts_pairs_not_rows() -> None:
    rows = ref.dispatch(CONFIG, [tokens((0, 1), (1, 1)), tokens((2, 1))])
    assert ref.local_expert_count(CONFIG, 0, rows[0]).tolist() == [1, 4]
    assert ref.local_expert_count(CONFIG, 1, rows[1]).tolist() == [1, 0]


def test_combine_adds_a_row_for_each_rank_a_token_went_to() -> None:
    rows = ref.dispatch(CONFIG, BOTH)
    (first, none), (second, _) = ref.combine(CONFIG, BOTH, rows, [r.input for r in rows])
    assert none is None
    assert first[:, 0].tolist() == [0, 1, 2]  # token 0 went twice: 0 + 0
    assert second[:, 0].tolist() == [20, 11]  # token 0 went twice: 10 + 10


def test_passing_weights_on_gives_them_times_the_number_of_ranks() -> None:
    rows = ref.dispatch(CONFIG, BOTH)
    results = ref.combine(CONFIG, BOTH, rows, [r.input for r in rows], [r.weights for r in rows])
    assert results[1][1].tolist() == [[0.5, 1.5], [0.25, 0.75]]


def test_weighted_combine_multiplies_each_row_by_the_weights_for_its_rank() -> None:
    mine = [tokens((0, 3), (1, 0), (2, -1)), tokens()]
    rows = ref.dispatch(CONFIG, mine)
    outputs = [np.full((len(r), 1), 100.0 * (rank + 1), np.float32) for rank, r in enumerate(rows)]
    (out, _), _ = ref.combine(CONFIG, mine, rows, outputs, weighted=True)
    assert out[:, 0].tolist() == [0.25 * 100 + 0.75 * 200, 100, 0.25 * 200]


def test_sums_are_rounded_once() -> None:
    four = ref.Config(4, 1, 4, 1)
    mine = [tokens() for _ in range(4)]
    for m in mine:
        m.indices = np.zeros((0, 4), np.int32)
    mine[0] = ref.Tokens(np.zeros((1, 1), np.float32), np.array([[0, 1, 2, 3]], np.int32))
    mine[0].input = mine[0].input.astype(ml_dtypes.bfloat16)
    for m in mine[1:]:
        m.input = np.zeros((0, 1), ml_dtypes.bfloat16)
    rows = ref.dispatch(four, mine)
    outputs = [np.array([[v]], ml_dtypes.bfloat16) for v in (256, 1, 1, 1)]
    # bfloat16 has 8 bits: 256 + 1 would stay 256 if every step were rounded.
    assert float(ref.combine(four, mine, rows, outputs)[0][0][0, 0]) == 260


@pytest.mark.parametrize(("cap", "max_recv"), [(0, 8), (3, 4), (4, 4), (5, 6), (100, 8)])
def test_the_cap_is_shared_out_among_sources_and_rounded_up(cap: int, max_recv: int) -> None:
    config = ref.Config(2, 2, 2, 4, cap)
    assert config.max_recv == max_recv


def test_who_would_exceed_the_cap_sends_nothing_and_later_ranks_still_may() -> None:
    config = ref.Config(3, 1, 1, 2, max_total_recv_tokens=3)
    to_first = np.zeros((2, 1), np.int32)
    mine = [ref.Tokens(np.full((2, 1), n, np.float32), to_first) for n in range(3)]
    mine[2] = ref.Tokens(mine[2].input[:1], to_first[:1])
    assert config.max_recv == 3
    assert ref.admitted(config, mine) == [True, False, True]
    rows = ref.dispatch(config, mine)
    assert rows[0].source == [(0, 0), (0, 1), (2, 0)]
    out = [o for o, _ in ref.combine(config, mine, rows, [r.input for r in rows])]
    assert [o.tolist() for o in out] == [[[0], [0]], [[0], [0]], [[2]]]


def test_the_direct_cast_keeps_four_bits_and_saturates() -> None:
    row = np.array([1, 17, 448, 1000, -1000, 0], ml_dtypes.bfloat16)
    assert ref.fp8_direct_cast(row).tolist() == [1, 16, 448, 448, -448, 0]


def test_each_block_is_scaled_by_its_own_largest_element() -> None:
    row = np.array([4480, 17, 0.448, 0.0017, 0], ml_dtypes.bfloat16)
    values = row.astype(np.float32)
    back = ref.fp8_blockwise(row, blocks=3)
    assert back[0] == pytest.approx(values[0])
    assert back[2] == pytest.approx(values[2])
    assert back[3] == pytest.approx(values[3], rel=2**-4)  # though it is far below what 4480 leaves room for
    assert back[4] == 0


def test_a_row_shorter_than_the_number_of_blocks_has_a_scale_for_each_element() -> None:
    row = np.array([1000, 0.001, -3], np.float32)
    assert ref.fp8_blockwise(row) == pytest.approx(row)


def test_packing_gives_each_expert_its_rows_and_unpacking_weighs_them() -> None:
    rows = ref.dispatch(CONFIG, BOTH)[0]
    packed = ref.pack(CONFIG, 0, rows)
    assert packed.count.tolist() == [2, 2]
    assert packed.row[:, :2].tolist() == [[0, 1], [1, 2]]
    assert packed.x[:, :2, 0].tolist() == [[0, 1], [1, 10]]
    outputs = np.zeros_like(packed.x)
    outputs[0], outputs[1] = 100, 200
    assert ref.unpack(CONFIG, 0, rows, packed, outputs)[:, 0].tolist() == [25, 0.25 * 200 + 0.75 * 100, 0.25 * 200]
