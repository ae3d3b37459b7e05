# SPDX-License-Identifier: MIT
"""Speed over the size of blocks, where the cases of a run differ in that."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from .measure import Result
from .report import BAD, GOOD, OURS, RAW

_SIZES = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_EXPLAINED = {
    "gpu-8192x4KiB-8blocks": "8 blocks of the GPU",
}


def is_on(result: Result) -> bool:
    """Whether a result is a point of the curve: batches of blocks on GPUs."""
    return result.case.kind == "blocks"


def draw(axis: Any, results: list[Result]) -> None:
    """Lines of what mori reaches and of its limits, targets as marks; what differs by more than the size is a point."""
    plain = [r for r in results if not r.case.read and r.case.name not in _EXPLAINED]
    _line(axis, plain, lambda r: r.raw, "memcpy of the same bytes in one piece", color=RAW, linewidth=6, alpha=0.6)
    _line(axis, plain, lambda r: r.value, "mori, batches in a row", color=OURS, marker="o", linewidth=2)
    _line(
        axis, plain, lambda r: r.extra.get("alone"), "mori, a batch at a time", color=OURS, marker=".", linestyle="--"
    )
    _line(axis, plain, _each, "memcpy of each block", color=BAD, marker=".", linestyle=":")
    pulled = [r for r in results if r.case.read]
    _line(axis, pulled, lambda r: r.value, "mori, read", color=GOOD, marker="v", linestyle="none")
    for result in results:
        if result.case.name in _EXPLAINED:
            label = f"mori, {_EXPLAINED[result.case.name]}"
            _line(axis, [result], lambda r: r.value, label, color="#d98c1a", marker="s", linestyle="none")
    aims = [r for r in plain if r.bound is not None]
    for i, result in enumerate(aims):
        place = (result.case.size * 0.8, result.case.size * 1.25)
        told = None if i else "target"
        axis.hlines(result.bound, *place, color=GOOD if result.ok else BAD, linewidth=2.5, label=told)
    sizes = sorted({r.case.size for r in results})
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [_size(n) for n in sizes])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.set_xlabel("size of a block")
    axis.set_ylabel("GB/s, more is better")
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)


def _line(axis: Any, results: Iterable[Result], value: Callable[[Result], Any], label: str, **style: Any) -> None:
    points = sorted((r.case.size, value(r)) for r in results if value(r) is not None)
    if points:
        axis.plot([x for x, _ in points], [y for _, y in points], label=label, **style)


def _each(result: Result) -> float | None:
    samples = result.raw_samples.get("memcpy each")
    return statistics.median(samples) if samples else None


def _size(n: int) -> str:
    unit, name = next((unit, name) for unit, name in _SIZES if n >= unit)
    return f"{n / unit:g} {name}"
