# SPDX-License-Identifier: MIT
"""Tries launches of dispatch and combine on the GPUs of this host, all ranks alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mori import device

from .._bench.gpu import ep_cases
from .._bench.gpu.chosen import GPUs
from .._bench.gpu.ep_cases import EPCase
from .._bench.gpu.ep_suite import package_of_rows, ranks_of
from .._bench.group import Group
from .._bench.suite import Unavailable
from .tables import Rule

BLOCKS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
WARPS = (4, 8)
TOKENS = (1, 8, 32, 128, 512, 1024, 4096, 8192)
# The names of calls in tables, by those of the benchmark's cases.
CALLS: tuple[tuple[str, ep_cases.Kind, str], ...] = (
    ("dispatch", "dispatch", "float8_e4m3fn"),
    ("dispatch", "dispatch", "bfloat16"),
    ("combine", "combine", "bfloat16"),
    ("combine_in_place", "combine-in-place", "bfloat16"),
)
_BYTES = {"float8_e4m3fn": 1, "bfloat16": 2}
_POOL_BYTES = 256 << 20
_WORTH = 0.98  # a larger launch must save more than this to be preferred


@dataclass(frozen=True)
class Wanted:
    """What is to be tuned: the layer, the numbers of tokens, and how many blocks a call may have at most (0: any)."""

    hidden: int
    experts: int
    topk: int
    tokens: tuple[int, ...] = TOKENS
    most_blocks: int = 0
    quick: bool = False

    def cases(self) -> list[tuple[str, EPCase]]:
        made = [(name, ep_cases.case(kind, n, dtype)) for n in self.tokens for name, kind, dtype in CALLS]
        if self.quick:
            made = [(name, replace(case, calls=2, rounds=1)) for name, case in made]
        return made

    def launches(self, units: int) -> list[tuple[int, int]]:
        """Blocks and warps, the smallest first."""
        most = min(units, self.most_blocks or units)
        blocks = [n for n in BLOCKS if n <= most] or [1]
        warps = WARPS[:1] if self.quick else WARPS
        return [(b, w) for b in blocks[: 2 if self.quick else None] for w in warps]


def steps(wanted: Wanted, units: int) -> int:
    """How many launches are tried."""
    return len(wanted.cases()) * len(wanted.launches(units))


def tune(wanted: Wanted, gpus: GPUs, tick: Callable[[], object]) -> Iterator[Rule]:
    """The best launch of each call. Tells tick of each that was tried.

    Raises Unavailable where something is missing, or sums and rows are wrong.
    """
    from .._bench.ep_rows import Sizes

    ranks, most = len(gpus.numbers), max(wanted.tokens)
    units = {info.device: info.units for info in device.devices()}[gpus.numbers[0]]
    if wanted.experts % ranks:
        raise ValueError(f"--experts {wanted.experts} do not spread evenly over {ranks} GPUs")
    pool = max(2 * most, 64 if wanted.quick else _POOL_BYTES // wanted.hidden)
    sizes = Sizes(pool, wanted.hidden, wanted.experts, wanted.topk, ranks)
    with ranks_of(list(gpus.numbers), sizes, most, package_of_rows(), wanted.quick) as group:
        graphs = not any(group.each("why_no_graphs"))
        for name, case in wanted.cases():
            case = case if graphs else replace(case, mode="eager")
            group.each("prepare", case)
            before = _micros(group)
            if wrong := sum(group.each("wrong")):
                raise Unavailable(f"{case.name}: {wrong} rows or sums are wrong")
            row_bytes = wanted.hidden * _BYTES[case.dtype]
            yield _best(group, wanted.launches(units), tick, Rule(name, row_bytes, case.tokens, 0, 0, 0.0, before))


def _best(group: Group, launches: list[tuple[int, int]], tick: Callable[[], object], rule: Rule) -> Rule:
    found: Rule | None = None
    for blocks, warps in launches:
        group.each("relaunch", blocks, warps)
        us = _micros(group)
        if found is None or us < found.us * _WORTH:
            found = replace(rule, blocks=blocks, warps=warps, us=round(us, 2), before=round(rule.before, 2))
        tick()
    assert found is not None
    return found


def _micros(group: Group) -> float:
    """The slowest rank of each round, the median of the rounds."""
    middle: float = statistics.median(max(at_once) for at_once in zip(*group.each("sample"), strict=True))
    return middle
