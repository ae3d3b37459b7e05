# SPDX-License-Identifier: MIT
"""Plots of results, drawn by matplotlib without a display: bars and curves."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .ep import SHORT
from .harness import Result
from .report import Machine, figure, human

OURS, RAW, GOOD, BAD, OTHER = "#2463a6", "#b9bec7", "#2e8b57", "#c0392b", "#d98c1a"
_LABELS = {
    "GB/s": "GB/s, more is better",
    "M/s": "million a second, more is better",
    "us": "µs, less is better",
    "ns": "ns, less is better",
}

_EP_COLOURS = {
    ("dispatch", "fp8"): OURS,
    ("dispatch", "bf16"): GOOD,
    ("combine", "bf16"): BAD,
    ("combine-in-place", "bf16"): OTHER,
    ("both", "bf16"): "#7d3c98",
}
_ABOVE: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3}


def unavailable(file: Path) -> str | None:
    """Return why a plot cannot be written to a file, or None. Asked before the measurement."""
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


def axes(rows: int, columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """Return a figure and its axes in one list."""
    import matplotlib.pyplot as plt

    fig, made = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")
    return fig, list(made.flat)


def draw(results: list[Result], what: str, machine: Machine, file: Path) -> None:
    """Draw bars for each unit, with targets as marks, below a curve over block sizes.

    Dispatch and combine on GPUs have curves only.
    """
    if what == "ep" and all("mode" in r.extra for r in results):
        fig, (over_tokens, over_blocks) = axes(2, 1, 11, 12)
        automatic = [r for r in results if r.extra["blocks"] == "auto" and r.extra["routing"] == "uniform"]
        _over(over_tokens, automatic, "tokens", "tokens of a rank")
        _over(over_blocks, [r for r in results if r.extra["blocks"] != "auto"], "blocks", "blocks of the launch")
    else:
        points = [r for r in results if r.case.kind == "blocks"]
        bars = [r for r in results if r not in points]
        units = [([r for r in bars if r.case.unit == unit], label) for unit, label in _LABELS.items()]
        groups = [(some, label) for some, label in units if some] or ([] if points else [(results, "value")])
        count = len(groups) + bool(points)
        fig, places = axes(count, 1, 11, 1.2 + 3.6 * count)
        if points:
            _sizes(places.pop(0), points)
        for axis, (some, label) in zip(places, groups, strict=True):
            _bars(axis, some, label)
    gpus = {f"{r.extra['device']}{', EMULATED' if r.extra['emulated'] else ''}" for r in results if "device" in r.extra}
    finish(fig, "\n".join([f"mori bench {what}", *sorted(gpus), str(machine)]), file, fontsize=10)


def finish(fig: Any, title: str, file: Path, fontsize: int) -> None:
    """Add the title and write the file."""
    import matplotlib.pyplot as plt

    fig.suptitle(title, fontsize=fontsize)
    fig.savefig(file, dpi=130)
    plt.close(fig)


def tidy(axis: Any, **legend: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(frameon=False, **{"fontsize": 9, **legend})


def _bars(axis: Any, results: list[Result], label: str) -> None:
    places, width = range(len(results)), 0.38
    raw = axis.bar([p + width / 2 for p in places], [r.raw or 0 for r in results], width, color=RAW, label="raw limit")
    ours = axis.bar([p - width / 2 for p in places], [r.value for r in results], width, color=OURS, label="mori")
    axis.bar_label(raw, fmt=figure, fontsize=8, color="#555")
    axis.bar_label(ours, fmt=figure, fontsize=8)
    _targets(axis, ((r, place - width, place) for place, r in enumerate(results)))
    axis.set_xticks(list(places), [r.case.name for r in results], rotation=20, ha="right", fontsize=9)
    axis.set_ylabel(label)
    figures = [value for r in results for value in (r.value, r.raw) if value]
    if label.endswith("less is better") and max(figures, default=1) > 10 * min(figures, default=1):
        axis.set_yscale("log")
    tidy(axis, **_ABOVE)


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


def _sizes(axis: Any, results: list[Result]) -> None:
    """Draw speed over the size of blocks. A case that differs in more than the size is a point."""
    reads = [r for r in results if r.case.read]
    eight = [r for r in results if r.case.name.endswith("-8blocks")]
    plain = [r for r in results if r not in reads and r not in eight]

    def line(some: list[Result], value: Callable[[Result], Any], label: str, **style: Any) -> None:
        if points := sorted((r.case.size, value(r)) for r in some if value(r) is not None):
            axis.plot(*zip(*points, strict=True), label=label, **style)

    def each(result: Result) -> float | None:
        samples = result.raw_samples.get("memcpy each")
        return statistics.median(samples) if samples else None

    line(plain, lambda r: r.raw, "memcpy of the same bytes in one piece", color=RAW, linewidth=6, alpha=0.6)
    line(plain, lambda r: r.value, "mori, batches in a row", color=OURS, marker="o", linewidth=2)
    line(plain, lambda r: r.extra.get("alone"), "mori, a batch at a time", color=OURS, marker=".", linestyle="--")
    line(plain, each, "memcpy of each block", color=BAD, marker=".", linestyle=":")
    line(reads, lambda r: r.value, "mori, read", color=GOOD, marker="v", linestyle="none")
    line(eight, lambda r: r.value, "mori, 8 blocks of the GPU", color=OTHER, marker="s", linestyle="none")
    _targets(axis, ((r, r.case.size * 0.8, r.case.size * 1.25) for r in plain))
    sizes = sorted({r.case.size for r in results})
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [human(n) for n in sizes])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.set(xlabel="size of a block", ylabel="GB/s, more is better")
    axis.grid(axis="y", alpha=0.3)
    tidy(axis, **_ABOVE)


def _over(axis: Any, results: list[Result], x: str, label: str) -> None:
    """Draw the times of dispatch and combine over tokens, or over the blocks of the launch."""

    def key(result: Result) -> tuple[str, str, str, int]:
        fact: Any = result.extra
        return result.case.kind, SHORT[fact["dtype"]], fact["mode"], fact["tokens"] if x == "blocks" else 0

    for (kind, dtype, mode, tokens), some in itertools.groupby(sorted(results, key=key), key):
        points = sorted((int(str(r.extra[x])), r.value, r.raw) for r in some)
        colour, style = _EP_COLOURS.get((kind, dtype), "#555555"), "-" if mode == "graph" else "--"
        name = f"{kind} {dtype}{f' {tokens}' if tokens else ''}, {mode}"
        axis.plot([p[0] for p in points], [p[1] for p in points], color=colour, linestyle=style, marker="o", label=name)
        if raws := [(place, raw) for place, _, raw in points if raw]:
            name = f"memcpy, {kind} {dtype}, {mode}"
            axis.plot(*zip(*raws, strict=True), color=colour, linewidth=5, alpha=0.25, label=name)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set(xlabel=label, ylabel="µs, less is better")
    axis.grid(alpha=0.3)
    tidy(axis, fontsize=7, ncols=2)
