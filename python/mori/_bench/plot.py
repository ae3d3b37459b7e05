# SPDX-License-Identifier: MIT
"""Pictures of results, drawn by matplotlib without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import curve
from .gpu import ep_plot
from .machine import Machine
from .measure import Result
from .report import BAD, GOOD, OURS, RAW, figure


def trouble(file: Path) -> str | None:
    """Why a picture cannot be written to the file, or None. Asked before the measurement, not after it."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as err:
        return f"--plot needs matplotlib ({err}); install it with: pip install matplotlib"
    known = FigureCanvasAgg.get_supported_filetypes()
    if file.suffix.lstrip(".").lower() not in known:
        return f"--plot {file}: the name must end in one of {', '.join('.' + kind for kind in sorted(known))}"
    if not file.absolute().parent.is_dir():
        return f"--plot {file}: there is no folder {file.absolute().parent}"
    return None


_LABELS = {
    "GB/s": "GB/s, more is better",
    "M/s": "million a second, more is better",
    "us": "µs, less is better",
    "ns": "ns, less is better",
}


def draw(results: list[Result], what: str, machine: Machine, file: Path) -> None:
    """Bars of throughput, ours beside raw with the target as a mark, and of times below them.

    What differs in the size of blocks is a curve above them. Dispatch and combine on GPUs have curves alone.
    """
    import matplotlib.pyplot as plt

    if all(ep_plot.is_on(r) for r in results):
        fig, axes = plt.subplots(2, 1, figsize=(11, 12), layout="constrained")
        ep_plot.draw(axes, results)
        _finish(fig, results, what, machine, file)
        return

    points = [r for r in results if curve.is_on(r)]
    groups = [
        ([r for r in results if r.case.unit == unit and r not in points], label) for unit, label in _LABELS.items()
    ]
    groups = [(some, label) for some, label in groups if some] or ([] if points else [(results, "value")])
    count = len(groups) + bool(points)
    fig, axes = plt.subplots(count, 1, figsize=(11, 1.2 + 3.6 * count), squeeze=False, layout="constrained")
    if points:
        curve.draw(axes[0, 0], points)
    for axis, (some, label) in zip(axes[count - len(groups) :, 0], groups, strict=True):
        _bars(axis, some, label)
        if label.endswith("less is better") and _spread(some) > 10:
            axis.set_yscale("log")
    _finish(fig, results, what, machine, file)


def _finish(fig: Any, results: list[Result], what: str, machine: Machine, file: Path) -> None:
    """Names the machine, and writes the file."""
    import matplotlib.pyplot as plt

    gpus = {f"{r.extra['device']}{', EMULATED' if r.extra['emulated'] else ''}" for r in results if "device" in r.extra}
    fig.suptitle("\n".join([f"mori bench {what}", *sorted(gpus), str(machine)]), fontsize=10)
    fig.savefig(file, dpi=130)
    plt.close(fig)


def _bars(axis: Any, results: list[Result], label: str) -> None:
    places = range(len(results))
    width = 0.38
    raw = axis.bar([p + width / 2 for p in places], [r.raw or 0 for r in results], width, color=RAW, label="raw limit")
    ours = axis.bar([p - width / 2 for p in places], [r.value for r in results], width, color=OURS, label="mori")
    axis.bar_label(raw, fmt=figure, fontsize=8, color="#555")
    axis.bar_label(ours, fmt=figure, fontsize=8)
    for place, result in zip(places, results, strict=True):
        if result.bound is not None:
            colour = GOOD if result.ok else BAD
            axis.hlines(
                result.bound, place - width, place, color=colour, linewidth=2.5, label=None if place else "target"
            )
    axis.set_xticks(list(places), [r.case.name for r in results], rotation=20, ha="right", fontsize=9)
    axis.set_ylabel(label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)


def _spread(results: list[Result]) -> float:
    figures = [f for r in results for f in (r.value, r.raw) if f]
    return max(figures, default=1) / min(figures, default=1)
