# SPDX-License-Identifier: MIT
"""The figures of a run of `mori demo`."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass

from .._bench.report import Machine
from .cache import Shape
from .worker import LayerTime, Mode

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Outcome:
    """A finished run. `raw` has the samples of each raw limit in GB/s; it is empty if none could be
    measured.
    """

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
    def raw_best(self) -> tuple[str, float] | None:
        """Return name and median of the fastest raw limit."""
        medians = {name: statistics.median(samples) for name, samples in self.raw.items()}
        return max(medians.items(), key=lambda pair: pair[1], default=None)

    @property
    def share(self) -> float | None:
        return self.gbps / self.raw_best[1] if self.raw_best else None

    @property
    def right(self) -> bool:
        return not self.wrong and not self.touched

    def latencies_ms(self) -> list[float]:
        """Return the time from submission to completion of each layer."""
        return [1e3 * (time.completed - time.submitted) for time in self.times]

    def latency_summary(self) -> dict[str, float]:
        ordered = sorted(self.latencies_ms())
        summary = {f"p{p}": ordered[max(0, math.ceil(p / 100 * len(ordered)) - 1)] for p in PERCENTILES}
        return {**summary, "max": ordered[-1]}

    def as_dict(self) -> dict[str, object]:
        return {
            "path": self.path,
            "mode": self.mode,
            "bytes": self.shape.moved_bytes,
            "blocks": self.shape.moved_blocks,
            "block_bytes": self.shape.block_bytes,
            "seconds": round(self.seconds, 6),
            "gbps": round(self.gbps, 4),
            "raw": round(self.raw_best[1], 4) if self.raw_best else None,
            "raw_limit": self.raw_best[0] if self.raw_best else None,
            "share": round(self.share, 4) if self.share is not None else None,
            "latency_ms": {name: round(ms, 4) for name, ms in self.latency_summary().items()},
            "layers_ms": [round(ms, 4) for ms in self.latencies_ms()],
            "wrong_blocks": self.wrong,
            "touched_spare_blocks": self.touched,
            "shape": asdict(self.shape),
            "machine": self.machine.as_dict(),
        }
