# SPDX-License-Identifier: MIT
"""The arithmetic of a paged KV cache."""

from __future__ import annotations

import pytest

from mori._demo.kv import fit
from mori._demo.kv_side import Shape, block_table

SMALL = Shape(layers=3, kv_heads=2, head_dim=16, dtype="fp16", block_size=4, tokens=21)


def test_the_default_moves_about_one_gibibyte() -> None:
    shape = Shape(80, 8, 128, "bf16", 16, 3328)
    assert shape.block_bytes == 32 << 10
    assert shape.moved_bytes == 80 * 2 * 208 * (32 << 10)
    assert 0.95 < shape.moved_bytes / 2**30 < 1.05


def test_a_started_block_counts_whole() -> None:
    assert SMALL.blocks == 6
    assert SMALL.layer_bytes * SMALL.layers == SMALL.moved_bytes


def test_blocks_of_a_layer_do_not_overlap_and_stay_inside() -> None:
    table = block_table(SMALL, 1, "prefill")
    places = sorted([*SMALL.offsets(table), *SMALL.spare_offsets(table)])
    assert places == list(range(0, SMALL.region_bytes, SMALL.block_bytes))


def test_the_two_sides_use_different_blocks_in_a_different_order() -> None:
    shape = Shape(1, 1, 1, "fp8", 1, 100)
    prefill, decode = block_table(shape, 1, "prefill"), block_table(shape, 1, "decode")
    assert prefill != decode
    assert prefill == block_table(shape, 1, "prefill")
    assert all(len(set(table)) == 100 and max(table) < shape.pool for table in (prefill, decode))


def test_an_index_names_a_block_whatever_the_table() -> None:
    one, two = (SMALL.granules(1, block_table(SMALL, seed, "decode")) for seed in (1, 2))
    assert [index for _, index in one] == [index for _, index in two] == list(range(12, 24))


@pytest.mark.parametrize(
    ("change", "text"),
    [({"layers": 0}, "layers must be at least 1, got 0"), ({"dtype": "int3"}, "dtype must be one of bf16")],
)
def test_impossible_shapes_are_refused(change: dict, text: str) -> None:
    values = {"layers": 1, "kv_heads": 1, "head_dim": 1, "dtype": "bf16", "block_size": 1, "tokens": 1}
    with pytest.raises(ValueError, match=text):
        Shape(**{**values, **change})


def test_a_cache_that_fits_is_left_alone() -> None:
    assert fit(SMALL, 1 << 40, may_shrink=True) == SMALL
    assert fit(SMALL, 0, may_shrink=True) == SMALL, "an unknown amount of memory is no reason to refuse"


def test_a_cache_that_does_not_fit_shrinks_if_it_may() -> None:
    shape = Shape(80, 8, 128, "bf16", 16, 3328)
    smaller = fit(shape, 1 << 30, may_shrink=True)
    assert isinstance(smaller, Shape)
    assert smaller.tokens < shape.tokens
    assert 2 * smaller.cache_bytes < 1 << 30


def test_a_cache_that_does_not_fit_and_may_not_shrink_is_refused_with_the_figures() -> None:
    said = fit(Shape(80, 8, 128, "bf16", 16, 3328), 1 << 30, may_shrink=False)
    assert isinstance(said, str)
    assert "1 GiB are free" in said
    assert "--tokens" in said
