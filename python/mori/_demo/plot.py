# SPDX-License-Identifier: MIT
"""The plot of `mori demo`: a histogram of layer latencies, and throughput over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._bench.plot import OURS, finish, tidy
from .outcome import Outcome
from .report import human, shape_line

_RAW, _MARKS = "#8a929e", ("#2e8b57", "#d98c1f", "#c0392b", "#6d3f9c")


def draw(outcome: Outcome, file: Path) -> None:
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    _latency(left, outcome)
    _throughput(right, outcome)
    title = f"{human(outcome.shape.moved_bytes)} of KV cache by {outcome.path}, {outcome.mode}: {outcome.gbps:.2f} GB/s"
    finish(fig, f"{title}\n{shape_line(outcome.shape)} | {outcome.machine}", file, fontsize=9)


def _latency(axis: Any, outcome: Outcome) -> None:
    axis.hist(outcome.latencies_ms(), bins=min(40, max(8, outcome.shape.layers // 2)), color=OURS, alpha=0.85)
    for (name, ms), mark in zip(outcome.latency_summary().items(), _MARKS, strict=True):
        axis.axvline(ms, color=mark, linewidth=1.5, label=f"{name} {ms:.2f} ms")
    axis.set_title("latency of a layer", fontsize=10)
    axis.set_xlabel("ms from submission to completion")
    axis.set_ylabel("layers")
    tidy(axis, fontsize=8)


def _throughput(axis: Any, outcome: Outcome) -> None:
    ends = [time.completed for time in outcome.times]
    steps = [end - begin for begin, end in zip([0.0, *ends], ends, strict=False)]
    speed = [outcome.shape.layer_bytes / max(step, 1e-9) / 1e9 for step in steps]
    milliseconds = [1e3 * end for end in ends]
    axis.step([0.0, *milliseconds], [speed[0], *speed], where="pre", color=OURS, linewidth=1, label="each layer")
    axis.axhline(outcome.gbps, color=OURS, linestyle=":", label=f"mean {outcome.gbps:.2f} GB/s")
    if outcome.raw_best:
        name, gbps = outcome.raw_best
        axis.axhline(gbps, color=_RAW, linestyle="--", label=f"raw {gbps:.2f} GB/s ({name})")
    axis.set_title("throughput over time", fontsize=10)
    axis.set_xlabel("ms since the first submission")
    axis.set_ylabel("GB/s")
    axis.set_ylim(bottom=0)
    axis.set_xlim(0, milliseconds[-1])
    tidy(axis, fontsize=8)
