# SPDX-License-Identifier: MIT
"""`mori bench shmem`: one-sided operations, atomics and barriers of mori.shmem between processes of this host."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from . import openshmem
from .cases import MIB, Case, Target, pick
from .gpu import initiated
from .gpu import shmem_suite as gpu_suite
from .group import Group
from .measure import Plan
from .openshmem import Library
from .shmem_pe import PE
from .suite import Suite, Unavailable

DESCRIPTION = (
    "Measure mori.shmem between processes of this host and, in turns with it, what the machine needs at least: memcpy "
    "and atomic instructions on the same mapping, and a barrier of spinning flags, in C. Names that end in -python are "
    "of calls from Python, the others of a loop inside of the extension; those that end in -openshmem are held against "
    "the OpenSHMEM library that is installed here. On GPUs the yardstick is the driver's memcpy. Every byte that "
    "was moved is verified."
)

_HEAP = 64 * MIB
Form = Literal["native", "python", "openshmem"]


@dataclass(frozen=True)
class ShmemCase(Case):
    """`kind` is the operation, as the loops name it, `form` what is measured or held against, `pes` how many there are.

    A round is one operation; `rounds` of them make a run.
    """

    form: Form = "native"
    pes: int = 2
    rounds: int = 1
    both: bool = False  # two PEs do it to the same word all the time


def _forms(name: str, kind: str, size: int, rounds: int, native: Target, python: Target | None) -> Iterator[ShmemCase]:
    unit = "GB/s" if size == MIB else "ns"
    equal = Target("ratio", ">=" if size == MIB else "<=", 1.0)
    targets: tuple[tuple[str, Form, Target | None], ...] = (
        ("", "native", native),
        ("-python", "python", python),
        ("-openshmem", "openshmem", equal),
    )
    for suffix, form, target in targets:
        yield ShmemCase(name + suffix, kind, unit, size=size, target=target, form=form, rounds=rounds)


def _all() -> Iterator[ShmemCase]:
    fast, atomic = Target("ratio", ">=", 0.9), Target("ratio", "<=", 1.5)
    yield from _forms("put-1MiB", "put", MIB, 20, fast, fast)
    yield from _forms("get-1MiB", "get", MIB, 20, fast, fast)
    short = Target("value", "<=", 1000, "ns")
    yield from _forms("put-8B-quiet", "put_quiet", 8, 5000, short, short)
    yield from _forms("fetch-add", "fetch_add", 8, 5000, atomic, None)
    yield ShmemCase("swap", "swap", "ns", size=8, target=atomic, rounds=5000)
    yield ShmemCase("compare-swap", "compare_swap", "ns", size=8, target=atomic, rounds=5000)
    yield ShmemCase("fetch-add-both", "fetch_add", "ns", size=8, target=atomic, rounds=50_000, both=True)
    yield from _forms("barrier-2", "barrier", 0, 2000, Target("ratio", "<=", 2.0), None)
    yield ShmemCase("barrier-4", "barrier", "ns", pes=4, rounds=200)
    yield ShmemCase("barrier-8", "barrier", "ns", pes=8, rounds=100)


CASES: tuple[ShmemCase, ...] = tuple(_all())
NAMES = [case.name for case in CASES]
GPU_NAMES = gpu_suite.NAMES

_RAW = {"put": "memcpy", "get": "memcpy_from", "put_quiet": "store"}
_RAW_NAMES = {"memcpy": "memcpy", "memcpy_from": "memcpy", "barrier": "spinning flags"}


def options(parser: argparse.ArgumentParser) -> None:
    """What the other suites do not have."""
    parser.add_argument(
        "--initiated",
        action="store_true",
        help="puts that kernels of GPUs post themselves, by stores, proxies and the emulated NIC; "
        f"--gpus cpu for threads of the CPU; cases: {', '.join(initiated.NAMES)}",
    )


def suite(args: argparse.Namespace) -> Suite:
    """The cases of the memory that was asked for. Raises ValueError and Unavailable."""
    if args.initiated:
        return initiated.Initiated(args)
    return gpu_suite.GPUShmem(args) if args.device == "gpu" else Shmem(args)


class Shmem:
    """See suite.Suite. Cases beside OpenSHMEM are left out where there is none, unless they were asked for by name."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases = pick(CASES, args.cases)
        self.runs = 3 if args.quick else 50
        self._quick = args.quick
        self.how = [f"each the fastest of {self.runs} runs", "raw limits take turns", "moved bytes are compared"]
        self.how.append("each PE on a core of its own where there are enough")
        if args.cases is None and (reason := openshmem.missing()):
            cases = [case for case in cases if case.form != "openshmem"]
            self.how.append(f"no OpenSHMEM to compare with: {reason}")
        self.cases: list[ShmemCase] = cases
        self.facts: dict[str, object] = {"runs": self.runs}
        self._group: Group | None = None
        self._library = Library()

    def __enter__(self) -> Shmem:
        return self

    def __exit__(self, *failure: Any) -> None:
        try:
            self._use(0, *failure)
        finally:
            self._library.close()

    def _use(self, pes: int, *failure: Any) -> None:
        """Ends the PEs of other cases, and starts as many as are asked for."""
        if self._group is not None and self._group.size != pes:
            group, self._group = self._group, None
            group.__exit__(*(failure or (None, None, None)))
        if self._group is None and pes:
            self._group = Group(f"{PE.__module__}:{PE.__name__}", pes, _HEAP)

    @property
    def group(self) -> Group:
        assert self._group is not None
        return self._group

    def plan(self, case: Case) -> tuple[str, Plan]:
        assert isinstance(case, ShmemCase)
        self._use(case.pes)
        path = self.group.one(0, "paths")[1]
        if path != "mapped":
            raise Unavailable(f"PE 1 is reached by {path}: there is no mapping to measure on")
        plan = _barriers(self, case) if case.kind == "barrier" else _moves(self, case)
        if case.form == "openshmem":
            plan.raws = {"OpenSHMEM": lambda: _figure(case, self.library(case))}
        plan.best = max if case.unit == "GB/s" else min
        plan.extra["form"] = case.form
        return path, plan

    def library(self, case: ShmemCase) -> float:
        return self._library.measure(case.kind, case.size, self.rounds(case), self.runs)

    def rounds(self, case: ShmemCase) -> int:
        return max(1, case.rounds // 50) if self._quick else case.rounds


def _figure(case: ShmemCase, ns: float) -> float:
    """The case's figure from the nanoseconds of a round."""
    return case.size / ns if case.unit == "GB/s" else ns


def _barriers(suite: Shmem, case: ShmemCase) -> Plan:
    """All PEs meet again and again: nanoseconds at PE 0."""
    group, rounds, runs = suite.group, suite.rounds(case), suite.runs if case.pes == 2 else min(suite.runs, 10)

    def ours() -> float:
        if case.form == "python":
            return float(group.each("python", "barrier", 0, rounds, runs)[0])
        return float(group.each("native", "barrier", 0, 0, rounds, runs)[0])

    return Plan(ours, {_RAW_NAMES["barrier"]: lambda: float(group.each("raw_barrier", rounds, runs)[0])})


def _moves(suite: Shmem, case: ShmemCase) -> Plan:
    """PE 0 moves bytes to or from PE 1, or changes a word of it."""
    group, rounds, runs, n = suite.group, suite.rounds(case), suite.runs, case.size
    raw = _RAW.get(case.kind, case.kind)

    def turn(form: str, what: str) -> Callable[[], float]:
        args = (what, n, rounds, runs) if form == "python" else (what, n, 1, rounds, runs)

        def once() -> float:
            if case.both:
                slower = map(max, *group.each("at_once", form, what, n, rounds, runs))
                return _figure(case, min(slower))
            return _figure(case, group.one(0, form, *args))

        return once

    ours = turn("python" if case.form == "python" else "native", case.kind)
    plan = Plan(ours, {_RAW_NAMES.get(raw, f"{raw} instruction"): turn("raw", raw)})
    if case.kind in ("put", "put_quiet", "get"):
        receiver, which = (0, "own") if case.kind == "get" else (1, "symmetric")
        group.one(1 - receiver, "fill", "symmetric" if case.kind == "get" else "own")
        plan.prepare = lambda: group.one(receiver, "wipe", which)
        plan.verify = lambda: int(group.one(receiver, "wrong", which, n))
    else:
        made = rounds * runs * (2 if case.both else 1)
        plan.prepare = lambda: group.one(1, "wipe", "symmetric")
        plan.verify = lambda: int(group.one(1, "word") != made)
    return plan
