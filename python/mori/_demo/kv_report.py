# SPDX-License-Identifier: MIT
"""The figures of a run of `mori demo kv`, as a table, as JSON and as a plot."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from .._bench import plot
from .._bench.report import Machine, human, verdict
from ..cli import _table
from .kv_side import LayerTime, Mode, Shape

_PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Outcome:
    """A finished run. `raw` has the samples of each raw limit in GB/s; it may be empty."""

    shape: Shape
    machine: Machine
    mode: Mode
    path: str
    reasons: list[str]
    times: list[LayerTime]
    raw: dict[str, list[float]]
    wrong: int
    touched: int

    @property
    def seconds(self) -> float:
        return self.times[-1].completed

    @property
    def gbps(self) -> float:
        return self.shape.moved_bytes / self.seconds / 1e9

    @property
    def raw_best(self) -> tuple[str, float] | tuple[None, None]:
        """Return name and median of the fastest raw limit."""
        medians = {name: statistics.median(samples) for name, samples in self.raw.items()}
        return max(medians.items(), key=lambda pair: pair[1], default=(None, None))

    @property
    def share(self) -> float | None:
        return self.gbps / self.raw_best[1] if self.raw_best[1] else None

    @property
    def right(self) -> bool:
        return not self.wrong and not self.touched

    def latencies_ms(self) -> list[float]:
        """Return the time from submission to completion of each layer."""
        return [1e3 * (time.completed - time.submitted) for time in self.times]

    def latency_summary(self) -> dict[str, float]:
        ordered = sorted(self.latencies_ms())
        places = {p: max(0, math.ceil(p / 100 * len(ordered)) - 1) for p in _PERCENTILES}
        return {**{f"p{p}": ordered[place] for p, place in places.items()}, "max": ordered[-1]}

    def as_dict(self) -> dict[str, object]:
        def short(figure: float | None) -> float | None:
            return None if figure is None else round(figure, 4)

        return {
            "path": self.path,
            "mode": self.mode,
            "bytes": self.shape.moved_bytes,
            "blocks": self.shape.moved_blocks,
            "block_bytes": self.shape.block_bytes,
            "seconds": round(self.seconds, 6),
            "gbps": short(self.gbps),
            "raw": short(self.raw_best[1]),
            "raw_limit": self.raw_best[0],
            "share": short(self.share),
            "latency_ms": {name: short(ms) for name, ms in self.latency_summary().items()},
            "layers_ms": [short(ms) for ms in self.latencies_ms()],
            "wrong_blocks": self.wrong,
            "touched_spare_blocks": self.touched,
            "shape": asdict(self.shape),
            "machine": asdict(self.machine),
        }

    def table(self) -> str:
        """Return what was moved, how fast, and whether it arrived."""
        shape, (name, raw) = self.shape, self.raw_best
        verb = "prefill wrote to decode" if self.mode == "write" else "decode read from prefill"
        limit = "not measured: this system refuses process_vm_readv"
        if name:
            limit = f"{raw:.2f} GB/s, {name}, median of {len(self.raw[name])} around the transfer"
        facts = {
            "machine": str(self.machine),
            "cache": str(shape),
            "moved": f"{human(shape.moved_bytes)}: {shape.moved_blocks:,} blocks of {human(shape.block_bytes)}, {verb}",
            "path": self.path,
            "time": f"{self.seconds * 1e3:,.0f} ms",
            "throughput": f"{self.gbps:.2f} GB/s",
            "raw limit": limit,
            "share": "-" if self.share is None else f"{self.share:.0%} of the raw limit",
            "layer latency": "   ".join(f"{name} {ms:.2f} ms" for name, ms in self.latency_summary().items()),
        }
        if self.reasons:
            facts["why this path"] = "; ".join(self.reasons)
        good = f"Every byte of {shape.moved_blocks:,} blocks is right, spare blocks untouched."
        bad = f"WRONG BYTES: {self.wrong:,} of {shape.moved_blocks:,} blocks differ, {self.touched:,} spare blocks"
        return f"{_table.pairs(facts)}\n{verdict(self.right, good, f'{bad} were written to.')}"

    def draw(self, file: Path) -> None:
        """Draw a histogram of layer latencies, and throughput over time."""
        moved = f"{human(self.shape.moved_bytes)} of KV cache by {self.path}, {self.mode}: {self.gbps:.2f} GB/s"
        title = f"{moved}\n{self.shape} | {self.machine}"
        plot.write(file, title, [self._latency, self._throughput])

    def _latency(self, axis: Any) -> None:
        axis.hist(self.latencies_ms(), bins=min(40, max(8, self.shape.layers // 2)), color=plot.OURS, alpha=0.85)
        for (name, ms), style in zip(self.latency_summary().items(), (":", "-.", "--", "-"), strict=True):
            axis.axvline(ms, color=plot.BAD, linestyle=style, label=f"{name} {ms:.2f} ms")
        axis.set(xlabel="ms from the submission of a layer to its completion", ylabel="layers")

    def _throughput(self, axis: Any) -> None:
        ends = [0.0, *(1e3 * time.completed for time in self.times)]
        speed = [self.shape.layer_bytes / max(end - begin, 1e-6) / 1e6 for begin, end in pairwise(ends)]
        axis.stairs(speed, ends, color=plot.OURS, label="each layer")
        axis.axhline(self.gbps, color=plot.OURS, linestyle=":", label=f"mean {self.gbps:.2f} GB/s")
        name, raw = self.raw_best
        if raw:
            axis.axhline(raw, color=plot.RAW, linestyle="--", label=f"raw limit {raw:.2f} GB/s ({name})")
        axis.set(xlabel="ms since the first submission", ylabel="GB/s", xlim=(0, ends[-1]))
        axis.set_ylim(bottom=0)
