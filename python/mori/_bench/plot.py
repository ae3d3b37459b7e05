# SPDX-License-Identifier: MIT
"""Plots of results, drawn by matplotlib without a display: bars, and curves over a size."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from .harness import Result
from .report import Machine, figure, human

OURS, RAW, GOOD, BAD = "#2463a6", "#b9bec7", "#2e8b57", "#c0392b"
_LABELS = {
    "GB/s": "GB/s, more is better",
    "M/s": "million a second, more is better",
    "us": "µs, less is better",
    "ns": "ns, less is better",
}


def option(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add --plot. A plot that cannot be written is an error before the measurement."""
    parser.add_argument("--plot", type=_file, metavar="FILE", help=meaning)


def _file(name: str) -> Path:
    file = Path(name)
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as err:
        raise argparse.ArgumentTypeError(f"needs matplotlib ({err}); install it with: pip install matplotlib") from None
    known = FigureCanvasAgg.get_supported_filetypes()
    if file.suffix.lstrip(".").lower() not in known:
        endings = ", ".join(f".{kind}" for kind in sorted(known))
        raise argparse.ArgumentTypeError(f"the name {file} must end in one of {endings}")
    if not file.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {file.absolute().parent}")
    return file


def write(file: Path, title: str, panels: list[Callable[[Any], object]]) -> None:
    """Draw each panel on axes of its own, one below the other, and write the file."""
    import matplotlib.pyplot as plt

    size = 11, 1.2 + 4 * len(panels)
    fig, axes = plt.subplots(len(panels), figsize=size, squeeze=False, layout="constrained")
    for draw, axis in zip(panels, axes.flat, strict=True):
        draw(axis)
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[1]:
            axis.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    fig.suptitle(title, fontsize=10)
    fig.savefig(file, dpi=130)
    plt.close(fig)


def draw(results: list[Result], what: str, machine: Machine, file: Path) -> None:
    """Draw curves of the cases that belong to one, and bars of the others, for each unit."""
    panels: list[Callable[[Any], object]] = []
    for (over, unit), some in _grouped(results, lambda r: (r.case.point.over, r.case.unit)).items():
        panels.append(partial(_curves if over else _bars, unit=unit, results=some))
    gpus = {f"{r.extra['device']}{', EMULATED' if r.extra['emulated'] else ''}" for r in results if "device" in r.extra}
    write(file, "\n".join([f"mori bench {what}", *sorted(gpus), str(machine)]), panels)


def _grouped(results: list[Result], key: Callable[[Result], Any]) -> dict[Any, list[Result]]:
    groups: dict[Any, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def _bars(axis: Any, unit: str, results: list[Result]) -> None:
    places, width = range(len(results)), 0.38
    raw = axis.bar([p + width / 2 for p in places], [r.raw or 0 for r in results], width, color=RAW, label="raw limit")
    ours = axis.bar([p - width / 2 for p in places], [r.value for r in results], width, color=OURS, label="mori")
    axis.bar_label(raw, fmt=figure, fontsize=8, color="#555")
    axis.bar_label(ours, fmt=figure, fontsize=8)
    _targets(axis, ((r, place - width, place) for place, r in enumerate(results)))
    axis.set_xticks(list(places), [r.case.name for r in results], rotation=20, ha="right", fontsize=9)
    axis.set_ylabel(_LABELS.get(unit, unit))
    figures = [value for r in results for value in (r.value, r.raw) if value]
    if unit in ("us", "ns") and max(figures, default=1) > 10 * min(figures, default=1):
        axis.set_yscale("log")


def _targets(axis: Any, spans: Iterable[tuple[Result, float, float]]) -> None:
    """Draw a mark for each target, green if it is met; the first mark drawn has the label."""
    label: str | None = "target"
    for result, left, right in spans:
        target = result.case.target
        scale = result.raw if target and target.of == "ratio" else 1
        if target and scale:
            colour = GOOD if result.ok else BAD
            axis.hlines(target.bound * scale, left, right, color=colour, linewidth=2.5, label=label)
            label = None


def _curves(axis: Any, unit: str, results: list[Result]) -> None:
    """Draw lines, each in front of a wide one of its raw limit."""
    for name, some in _grouped(results, lambda r: r.case.point.line).items():
        some.sort(key=lambda r: r.case.point.at)
        places = [r.case.point.at for r in some]
        [line] = axis.plot(places, [r.value for r in some], marker="o", label=name)
        style = {"color": line.get_color(), "linewidth": 6, "alpha": 0.25}
        axis.plot(places, [r.raw or math.nan for r in some], label=f"{name}: raw limit", **style)
        if alone := [r.extra["alone"] for r in some if "alone" in r.extra]:
            axis.plot(places, alone, color=line.get_color(), linestyle="--", label=f"{name}: one batch at a time")
    _targets(axis, ((r, r.case.point.at * 0.8, r.case.point.at * 1.25) for r in results))
    axis.set_xscale("log", base=2)
    axis.set(xlabel=results[0].case.point.over, ylabel=_LABELS[unit])
    axis.grid(alpha=0.3)
    if unit == "GB/s":
        axis.set_ylim(bottom=0)
        axis.xaxis.set_major_formatter(lambda size, _: human(size))
    else:
        axis.set_yscale("log")
