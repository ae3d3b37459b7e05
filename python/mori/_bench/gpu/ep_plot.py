# SPDX-License-Identifier: MIT
"""A picture of `mori bench ep --device gpu`: times by the number of tokens, and by the budget of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..measure import Result
from .ep_cases import EPCase

_COLOURS = {
    ("dispatch", "float8_e4m3fn"): "#2463a6",
    ("dispatch", "bfloat16"): "#2e8b57",
    ("combine", "bfloat16"): "#c0392b",
    ("combine-in-place", "bfloat16"): "#d98c1a",
    ("both", "bfloat16"): "#7d3c98",
}
_SHORT = {"float8_e4m3fn": "fp8", "bfloat16": "bf16"}
_STYLES = {"graph": "-", "eager": "--"}


def is_on(result: Result) -> bool:
    """Whether a result is of such a run."""
    return isinstance(result.case, EPCase)


def draw(axes: Sequence[Any], results: list[Result]) -> None:
    """On one axis those whose launch mori chose, over tokens; on the other those with a budget, over blocks."""
    plain = [r for r in results if _case(r).blocks is None and not _case(r).skewed]
    _lines(axes[0], plain, lambda r: _case(r).tokens, "tokens of a rank")
    budgets = [r for r in results if _case(r).blocks is not None]
    _lines(axes[1], budgets, lambda r: _case(r).blocks or 0, "blocks of the launch")


def _case(result: Result) -> EPCase:
    assert isinstance(result.case, EPCase)
    return result.case


def _key(result: Result) -> tuple[str, str, str, int]:
    case = _case(result)
    return case.kind, case.dtype, case.mode, case.tokens if case.blocks else 0


def _lines(axis: Any, results: Iterable[Result], x: Callable[[Result], int], label: str) -> None:
    for (kind, dtype, mode, tokens), some in itertools.groupby(sorted(results, key=_key), _key):
        points = sorted(some, key=x)
        colour = _COLOURS.get((kind, dtype), "#555555")
        name = f"{kind} {_SHORT[dtype]}{f' {tokens}' if tokens else ''}, {mode}"
        places = [x(r) for r in points]
        axis.plot(places, [r.value for r in points], color=colour, linestyle=_STYLES[mode], marker="o", label=name)
        raws = [(place, r.raw) for place, r in zip(places, points, strict=True) if r.raw]
        if raws:
            told = f"memcpy, {kind} {_SHORT[dtype]}, {mode}"
            axis.plot(*zip(*raws, strict=True), color=colour, linewidth=5, alpha=0.25, label=told)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel("µs, less is better")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(frameon=False, fontsize=7, ncols=2)
