# SPDX-License-Identifier: MIT
"""The table of `mori bench` for people."""

from __future__ import annotations

import statistics

from ..cli import _table
from .machine import Machine
from .measure import Result
from .progress import GREEN, RED, colour

# The colours of pictures.
OURS, RAW, GOOD, BAD = "#2463a6", "#b9bec7", "#2e8b57", "#c0392b"


def heading(machine: Machine, repeats: int, how: list[str], quick: bool) -> str:
    """Names the machine and says how the figures come about."""
    told = [f"medians of {repeats}", *how, *(["QUICK: the figures mean nothing"] if quick else [])]
    return f"{machine}\n{'; '.join(told)}\n"


def table(results: list[Result]) -> str:
    """One line for each case."""
    rows = [_row(result) for result in results]
    lines = _table.table(rows).splitlines()
    return "\n".join([lines[0], *(_coloured(line, result) for line, result in zip(lines[1:], results, strict=True))])


def _row(result: Result) -> dict[str, str]:
    verdict = {True: "ok", False: "BELOW", None: ""}[result.ok]
    if result.ok is False and result.case.target and result.case.target.sense == "<=":
        verdict = "ABOVE"
    return {
        "case": result.case.name,
        "path": result.path,
        "ours": f"{figure(result.value):>8}",
        "unit": result.case.unit,
        "raw": f"{figure(result.raw):>8}",
        "ratio": f"{figure(result.ratio):>6}",
        "spread": f"{_spread(result.samples):>4}",
        "raw limit": fastest(result),
        "target": str(result.case.target or ""),
        "": verdict,
    }


def figure(number: float | None) -> str:
    """A number as a person reads it: three significant digits, no exponent."""
    if number is None:
        return "-"
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def fastest(result: Result) -> str:
    """The name of the raw limit that the ratio refers to."""
    medians = {name: statistics.median(samples) for name, samples in result.raw_samples.items()}
    return min(medians, key=lambda name: abs(medians[name] - (result.raw or 0)), default="-")


def _spread(samples: list[float]) -> str:
    middle = statistics.median(samples)
    return f"{50 * (max(samples) - min(samples)) / middle:.0f}%" if middle and len(samples) > 1 else "-"


def _coloured(line: str, result: Result) -> str:
    if result.ok is None:
        return line
    return colour(line, GREEN) if result.ok else colour(line, RED)
