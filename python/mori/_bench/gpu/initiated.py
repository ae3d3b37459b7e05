# SPDX-License-Identifier: MIT
"""`mori bench shmem --initiated`: puts that a GPU's own threads post, by each path that they may take.

Stores, where the other memory is mapped; a proxy of the host, over shared memory or TCP; and the emulated NIC, of which
only that it is right is told. A proxy is held against the host's own posts over the same provider.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mori import _core, _errors, device

from ..cases import Case, pick
from ..measure import Plan, WrongBytes
from ..suite import Unavailable
from . import chosen

CPU = "cpu"


@dataclass(frozen=True)
class PutCase(Case):
    """`route` is the path as the native side names it. A latency is of one thread that waits for each put."""

    route: str = ""
    count: int = 0


def _all() -> Iterator[PutCase]:
    for name, route, few, many in (
        ("stores", "stores", 20_000, 1_000_000),
        ("proxy-shm", "proxy:shm", 2_000, 100_000),
        ("proxy-tcp", "proxy:tcp", 1_000, 100_000),
    ):
        yield PutCase(f"{name}-8B-latency", "latency", "us", size=8, route=route, count=few)
        yield PutCase(f"{name}-8B-rate", "rate", "M/s", size=8, route=route, count=many)
    yield PutCase("emu0-8B-right", "right", "puts", size=8, route="emu0", count=2_000)


CASES: tuple[PutCase, ...] = tuple(_all())
NAMES = [case.name for case in CASES]

_WRONG = "wrong bytes arrived"


class Initiated:
    """See suite.Suite. Raises ValueError for cases and GPUs that there are not, Unavailable without any GPU."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.cases: list[PutCase] = pick(CASES, args.cases)
        self._quick = args.quick
        self.facts: dict[str, object] = {"quick": args.quick}
        self.how = ["puts by kernels, by the GPU's clock", "raw: the host's own posts", "moved bytes are compared"]
        if args.gpus == CPU:
            self._places, self._gpus = (CPU, CPU), 0
            self.how.append("the GPUs are threads of the CPU: the figures are not a GPU's")
            self.facts.update(device="CPU threads", emulated=True)
            return
        try:
            gpus = chosen.choose(args.gpus)
        except Unavailable as err:
            raise Unavailable(f"{err}; --gpus cpu has threads of the CPU instead") from None
        known = {info.device: f"{info.api.lower()}:{info.ordinal}" for info in device.devices()}
        self._places, self._gpus = (known[gpus.pair[0]], known[gpus.pair[1]]), len(set(gpus.pair))
        self.how += gpus.how()
        self.facts.update(device=gpus.names[0], emulated=gpus.emulated)

    def __enter__(self) -> Initiated:
        return self

    def __exit__(self, *failure: Any) -> None:
        """Each sample has its own sides."""

    def plan(self, case: Case) -> tuple[str, Plan]:
        assert isinstance(case, PutCase)
        count = max(32, case.count // 50) if self._quick else case.count
        extra: dict[str, object] = {"gpus": self._gpus, "puts": count}
        if case.kind == "right":
            return case.route, Plan(lambda: self._right(case, count), extra=extra)
        plan = Plan(lambda: self._figure(case, count, host=False), extra=extra, best=min if case.unit == "us" else max)
        if case.route.startswith("proxy"):
            plan.raws = {"the host's posts": lambda: self._figure(case, count, host=True)}
        return case.route, plan

    def _figure(self, case: PutCase, count: int, host: bool) -> float:
        ns = self._ns(case, count, host)
        return ns / 1e3 if case.unit == "us" else 1e3 / ns

    def _right(self, case: PutCase, count: int) -> float:
        """How many puts arrived: all, or this raises."""
        self._ns(case, count, host=False)
        return float(count)

    def _ns(self, case: PutCase, count: int, host: bool) -> float:
        """Nanoseconds of a put, of all that were made."""
        each = case.kind == "latency"
        blocks, threads = (1, 1) if each else (1, 4) if CPU in self._places else (8, 128)
        args = (case.route, *self._places, case.size, count, blocks, threads, each, host)
        try:
            return float(_core.call("BenchPuts", *args))
        except _errors.MoriError as err:
            if _WRONG in str(err):
                raise WrongBytes(f"{case.name}: {err}") from None
            raise Unavailable(str(err)) from None
