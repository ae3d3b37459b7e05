# SPDX-License-Identifier: MIT
"""What people see of benchmarks and demos: machine, progress bar, colours and tables."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import sys
import textwrap
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ..cli import _table
from .harness import Result

GREEN, RED = 32, 31


@dataclass(frozen=True)
class Machine:
    """What a reader needs to compare two runs."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str

    def __str__(self) -> str:
        size = f"{self.cores} cores, {self.memory_gib:.0f} GiB"
        return f"{self.cpu}, {size}, Linux {self.kernel}, Python {self.python}"


def this_machine() -> Machine:
    cpu = platform.machine()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        names = (line.partition(":")[2].strip() for line in info if line.startswith(("model name", "Model")))
        cpu = next(names, cpu)
    memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    return Machine(cpu, len(os.sched_getaffinity(0)), memory, platform.release(), platform.python_version())


def bar(total: float, quiet: bool, **options: Any) -> Any:
    """Return a tqdm bar if stderr is a terminal and tqdm is installed, else an invisible one."""
    with suppress(ImportError):
        if sys.stderr.isatty() and not quiet:
            from tqdm import tqdm

            return tqdm(total=total, file=sys.stderr, dynamic_ncols=True, **options)
    return nullcontext(SimpleNamespace(update=lambda n=1: None, set_description=lambda text: None))


def colour(text: str, code: int) -> str:
    """Colour a text if stdout is a terminal and NO_COLOR is not set."""
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def verdict(right: bool, good: str, bad: str) -> str:
    return colour(good, GREEN) if right else colour(bad, RED)


def heading(machine: Machine, repeats: int, how: list[str], quick: bool) -> str:
    """Name the machine and say how the figures were measured."""
    lines = [f"medians of {repeats}", *how, *(["QUICK: the figures mean nothing"] if quick else [])]
    text = "; ".join(lines)
    if sys.stdout.isatty():
        text = textwrap.fill(text, shutil.get_terminal_size().columns, break_on_hyphens=False)
    return f"{machine}\n{text}\n"


def table(results: list[Result]) -> str:
    """Return one line for each case, green if it reaches its target and red if not."""
    head, *lines = _table.table([_row(result) for result in results]).splitlines()
    codes = [None if result.ok is None else GREEN if result.ok else RED for result in results]
    pairs = zip(lines, codes, strict=True)
    return "\n".join([head, *(colour(line, code) if code else line for line, code in pairs)])


def _row(result: Result) -> dict[str, str]:
    missed = "ABOVE" if result.case.target and result.case.target.sense == "<=" else "BELOW"
    return {
        "case": result.case.name,
        "path": result.path,
        "ours": f"{figure(result.value):>8}",
        "unit": result.case.unit,
        "raw": f"{figure(result.raw):>8}",
        "ratio": f"{figure(result.ratio):>6}",
        "spread": f"{_spread(result.samples):>4}",
        "raw limit": nearest(result.raw_samples, result.raw or 0),
        "target": str(result.case.target or ""),
        "": {True: "ok", False: missed, None: ""}[result.ok],
    }


def figure(number: float | None) -> str:
    """Format a number with three significant digits and no exponent."""
    if number is None:
        return "-"
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def nearest(samples: dict[str, list[float]], value: float) -> str:
    """Return the name of the yardstick that the ratio refers to, whose median is nearest."""
    return min(samples, key=lambda name: abs(statistics.median(samples[name]) - value), default="-")


def _spread(samples: list[float]) -> str:
    middle = statistics.median(samples)
    return f"{50 * (max(samples) - min(samples)) / middle:.0f}%" if middle and len(samples) > 1 else "-"


def human(size: float) -> str:
    """Format bytes in the largest binary unit that keeps a digit before the point."""
    unit = 0
    while size >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if size == int(size) else f"{size:.2f} {_UNITS[unit]}"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
