# SPDX-License-Identifier: MIT
"""Tries launches of dispatch and combine on the GPUs of this host, the same on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from mori import device

from .._bench.ep import GPUCase, gpu_case, gpu_ranks, slowest
from .._bench.gpus import GPUs
from .._bench.harness import Unavailable
from .._bench.process import Group
from .tables import Rule

BLOCKS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
WARPS = (4, 8)
TOKENS = (1, 8, 32, 128, 512, 1024, 4096, 8192)
# The name of a call in the tables, the kind of the benchmark's case, the element type and its
# bytes.
CALLS = (
    ("dispatch", "dispatch", "float8_e4m3fn", 1),
    ("dispatch", "dispatch", "bfloat16", 2),
    ("combine", "combine", "bfloat16", 2),
    ("combine_in_place", "combine-in-place", "bfloat16", 2),
)
_WORTH = 0.98  # a larger launch must save more than this to be preferred


@dataclass(frozen=True)
class Request:
    """What to tune: the layer, the numbers of tokens, and the most blocks of a call (0: any
    number).
    """

    hidden: int
    experts: int
    topk: int
    tokens: tuple[int, ...] = TOKENS
    most_blocks: int = 0
    quick: bool = False

    def cases(self) -> list[tuple[Rule, GPUCase]]:
        """Return an empty rule and a case for each call and number of tokens."""
        more: dict[str, Any] = {"calls": 2, "rounds": 1} if self.quick else {}
        return [
            (Rule(name, self.hidden * size, n, 0, 0, 0.0, 0.0), replace(gpu_case(kind, n, dtype), **more))
            for n in self.tokens
            for name, kind, dtype, size in CALLS
        ]

    def launches(self, units: int) -> list[tuple[int, int]]:
        """Return blocks and warps, the smallest first."""
        most = min(units, self.most_blocks or units)
        blocks = [n for n in BLOCKS if n <= most] or [1]
        return [(b, w) for b in blocks[: 2 if self.quick else None] for w in WARPS[: 1 if self.quick else None]]


def units(gpus: GPUs) -> int:
    """Return the number of processors of the first GPU."""
    return {info.device: info.units for info in device.devices()}[gpus.numbers[0]]


def tune(request: Request, gpus: GPUs, tick: Callable[[], object]) -> Iterator[Rule]:
    """Yield the best launch of each call, and call tick after each launch.

    Raises Unavailable if a package is missing, or if sums or rows are wrong.
    """
    if request.experts % len(gpus.numbers):
        raise ValueError(f"--experts {request.experts} do not spread evenly over {len(gpus.numbers)} GPUs")
    layer = request.hidden, request.experts, request.topk
    with gpu_ranks(gpus.numbers, *layer, max(request.tokens), request.quick) as group:
        graphs = not any(group.each("why_no_graphs"))
        for rule, case in request.cases():
            group.each("prepare", case if graphs else replace(case, mode="eager"))
            before = round(slowest(group, "sample"), 2)
            if wrong := sum(group.each("wrong")):
                raise Unavailable(f"{case.name}: {wrong} rows or sums are wrong")
            yield _best(group, request.launches(units(gpus)), tick, replace(rule, before=before))


def _best(group: Group, launches: list[tuple[int, int]], tick: Callable[[], object], rule: Rule) -> Rule:
    best: Rule | None = None
    for blocks, warps in launches:
        group.each("relaunch", blocks, warps)
        us = slowest(group, "sample")
        if best is None or us < best.us * _WORTH:
            best = replace(rule, blocks=blocks, warps=warps, us=round(us, 2))
        tick()
    assert best is not None
    return best
