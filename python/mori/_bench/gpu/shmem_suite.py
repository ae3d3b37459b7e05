# SPDX-License-Identifier: MIT
"""`mori bench shmem --device gpu`: symmetric memory on GPUs, moved and met by the host's calls."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..cases import MIB, Case, pick
from ..group import Group
from ..measure import Plan
from ..suite import Unavailable
from . import chosen
from .cases import L2_BYTES, SHMEM_CASES, ShmemCase
from .shmem_pe import GPUPE

NAMES = [case.name for case in SHMEM_CASES]


class GPUShmem:
    """See suite.Suite. Raises ValueError for cases and GPUs that there are not, Unavailable without any GPU."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.cases: list[ShmemCase] = pick(SHMEM_CASES, args.cases)
        self._gpus, self._quick = chosen.choose(args.gpus), args.quick
        self._pes = max(2, len(self._gpus.numbers))
        self.how = [
            *self._gpus.how(),
            f"{self._pes} PEs",
            "calls by the clock of their caller, barriers and memcpy by events",
            "moved bytes are compared",
        ]
        self.facts: dict[str, object] = {"quick": args.quick}

    def __enter__(self) -> GPUShmem:
        room = 4 * MIB if self._quick else 4 * L2_BYTES
        gpus = list(self._gpus.numbers)
        self._group = Group(f"{GPUPE.__module__}:{GPUPE.__name__}", self._pes, 2 * room, gpus, room)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._group.__exit__(*failure)

    def plan(self, case: Case) -> tuple[str, Plan]:
        assert isinstance(case, ShmemCase)
        path = self._group.one(0, "paths")[1]
        if not self._group.one(0, "mapped"):
            raise Unavailable(f"PE 1 is reached by {path}: there is no mapping to measure on")
        plan = _PLANS[case.kind](self, case)
        plan.extra.update(self._gpus.facts(self._pes if case.kind == "barrier" else 2))
        return path, plan

    def _rounds(self, case: ShmemCase) -> int:
        return max(2, case.rounds // 50) if self._quick else case.rounds

    def _barriers(self, case: ShmemCase) -> Plan:
        group, rounds = self._group, self._rounds(case)
        group.each("fill", "own")

        def wipe() -> None:
            group.each("wipe", "symmetric")

        return Plan(
            lambda: max(group.each("barriers", rounds, not case.name.endswith("-calls"))) * 1e6,
            prepare=wipe,
            verify=lambda: sum(group.each("carried")),
            best=min,
            extra={"pes": self._pes},
        )

    def _signals(self, case: ShmemCase) -> Plan:
        """Kernels of PEs 0 and 1 answer each other. On one GPU they take turns of a millisecond."""
        rounds = self._rounds(case) if len(self._gpus.numbers) > 1 else 20
        return Plan(lambda: float(self._group.each("signals", rounds)[0]) / 1e3, best=min)

    def _moves(self, case: ShmemCase) -> Plan:
        """PE 0 moves bytes to or from PE 1."""
        group, rounds = self._group, self._rounds(case)
        size = min(case.size, MIB) if self._quick else case.size
        form, factor = ("stream", None) if case.unit == "GB/s" else ("latency", 1e6)

        def figure(method: str) -> float:
            seconds = float(group.one(0, method, case.kind, size, rounds))
            return size / seconds / 1e9 if factor is None else seconds * factor

        source, target, which = (1, 0, "own") if case.kind == "get" else (0, 1, "symmetric")
        group.one(source, "fill", "symmetric" if case.kind == "get" else "own")
        return Plan(
            lambda: figure(form),
            {"memcpy" if factor is None else "memcpy and wait": lambda: figure(f"raw_{form}")},
            lambda: group.one(target, "wipe", which),
            lambda: int(group.one(target, "wrong", which, size)),
            max if factor is None else min,
        )


_PLANS: dict[str, Callable[[GPUShmem, ShmemCase], Plan]] = {
    "barrier": GPUShmem._barriers,
    "signal": GPUShmem._signals,
    "put": GPUShmem._moves,
    "get": GPUShmem._moves,
}
