# SPDX-License-Identifier: MIT
"""Figures and text of a finished run."""

from __future__ import annotations

import dataclasses

import pytest

from mori._bench.report import human, this_machine
from mori._demo.kv_report import Outcome
from mori._demo.kv_side import LayerTime, Shape

SHAPE = Shape(layers=4, kv_heads=8, head_dim=128, dtype="bf16", block_size=16, tokens=160)
TIMES = [LayerTime(0.000, 0.001), LayerTime(0.001, 0.003), LayerTime(0.003, 0.004), LayerTime(0.004, 0.010)]
RAW = {"one": [1.0, 2.0, 9.0], "two": [3.0, 3.0, 3.0]}
GOOD = Outcome(SHAPE, this_machine(), "write", "shm/cma", [], TIMES, RAW, 0, 0)


def test_throughput_counts_from_the_first_submission_to_the_last_completion() -> None:
    assert GOOD.gbps == pytest.approx(SHAPE.moved_bytes / 0.010 / 1e9)
    assert GOOD.raw_best == ("two", 3.0)
    assert GOOD.share == pytest.approx(GOOD.gbps / 3.0)


def test_percentiles_are_latencies_that_occurred() -> None:
    assert GOOD.latency_summary() == pytest.approx({"p50": 1.0, "p90": 6.0, "p99": 6.0, "max": 6.0})


def test_the_table_tells_path_speed_share_and_verdict() -> None:
    text = GOOD.table()
    for part in ("shm/cma", "GB/s", "of the raw limit", "p50 1.00 ms", "max 6.00 ms", "Every byte of 80 blocks"):
        assert part in text
    assert "why this path" not in text


@pytest.mark.parametrize(("wrong", "touched"), [(1, 0), (0, 2)])
def test_wrong_bytes_are_shouted(wrong: int, touched: int) -> None:
    bad = dataclasses.replace(GOOD, wrong=wrong, touched=touched)
    assert not bad.right
    assert "WRONG BYTES" in bad.table()


def test_a_missing_raw_limit_is_told() -> None:
    bare = dataclasses.replace(GOOD, raw={})
    assert bare.share is None
    assert "not measured" in bare.table()


@pytest.mark.parametrize(("size", "text"), [(512, "512 B"), (32768, "32 KiB"), (1090519040, "1.02 GiB")])
def test_sizes_are_told_in_the_unit_that_fits(size: int, text: str) -> None:
    assert human(size) == text
