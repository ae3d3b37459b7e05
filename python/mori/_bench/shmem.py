# SPDX-License-Identifier: MIT
"""`mori bench shmem`: operations of mori.shmem between processes of this host."""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from mori import _core, _errors, device

from . import gpus
from .harness import MIB, Case, Plan, Suite, Target, Unavailable, WrongBytes, at_least, at_most, pick, providers
from .process import Group
from .raw import openshmem
from .raw.openshmem import Library
from .shmem_pe import GPUPE, GRANULE, PE

DESCRIPTION = (
    "Measure mori.shmem between processes of this host. The minimum that the machine needs takes turns with it, in "
    "C: memcpy and atomic instructions on the same mapping, and a barrier of spinning flags. Names that end in "
    "-python measure calls from Python, the others a loop inside the extension. Those that end in -openshmem are "
    "compared with the installed OpenSHMEM library. On GPUs the yardstick is the driver's memcpy. Every byte that "
    "was moved is verified."
)

_HEAP = 64 * MIB
_CPU = "cpu"
Form = Literal["native", "python", "openshmem"]


@dataclass(frozen=True)
class ShmemCase(Case):
    """`kind` is the operation. A run makes `times` of them between `pes` PEs.

    `form` is what is measured, or compared with; `both`: two PEs operate on the same word all the time.
    `path` names the path of puts that kernels post.
    """

    form: Form = "native"
    pes: int = 2
    both: bool = False


def _forms(name: str, kind: str, size: int, times: int, native: Target, python: Target | None) -> Iterator[ShmemCase]:
    unit, peer = ("GB/s", at_least(1.0)) if size == MIB else ("ns", at_most(1.0))
    forms: dict[Form, Target | None] = {"native": native, "python": python, "openshmem": peer}
    for form, target in forms.items():
        suffix = "" if form == "native" else f"-{form}"
        yield ShmemCase(name + suffix, kind, unit, size=size, target=target, times=times, form=form)


def _host_cases() -> Iterator[ShmemCase]:
    fast, atomic, small = at_least(0.9), at_most(1.5), at_most(1000, "ns")
    yield from _forms("put-1MiB", "put", MIB, 20, fast, fast)
    yield from _forms("get-1MiB", "get", MIB, 20, fast, fast)
    yield from _forms("put-8B-quiet", "put_quiet", 8, 5000, small, small)
    yield from _forms("fetch-add", "fetch_add", 8, 5000, atomic, None)
    yield ShmemCase("swap", "swap", "ns", size=8, target=atomic, times=5000)
    yield ShmemCase("compare-swap", "compare_swap", "ns", size=8, target=atomic, times=5000)
    yield ShmemCase("fetch-add-both", "fetch_add", "ns", size=8, target=atomic, times=50_000, both=True)
    yield from _forms("barrier-2", "barrier", 0, 2000, at_most(2.0), None)
    yield ShmemCase("barrier-4", "barrier", "ns", pes=4, times=200)
    yield ShmemCase("barrier-8", "barrier", "ns", pes=8, times=100)


CASES = tuple(_host_cases())
_BIG: dict[str, Any] = {"size": 64 * MIB, "target": at_least(0.9), "times": 16}
GPU_CASES = (
    ShmemCase("barrier-on-stream", "barrier", "us", target=at_most(5, "us"), times=200, predicted="4.5 us"),
    ShmemCase("barrier-on-stream-calls", "barrier", "us", times=200, predicted="8 us"),
    ShmemCase("put-signal-8B", "signal", "us", size=8, target=at_most(2, "us"), times=2000, predicted="2.7 us"),
    ShmemCase("gpu-put-64MiB", "put", "GB/s", **_BIG, predicted="370 GB/s"),
    ShmemCase("gpu-get-64MiB", "get", "GB/s", **_BIG, predicted="365 GB/s"),
    ShmemCase("gpu-put-8B", "put", "us", size=8, times=500, predicted="11 us"),
)


@functools.cache
def initiated_cases() -> list[ShmemCase]:
    """Puts that kernels post: stores, proxies over providers, the emulated NIC (correctness only)."""
    ways = [("stores", "stores", 20_000, 1_000_000)]
    for name, medium in providers().items():
        if medium in ("memory", "socket"):
            ways.append((f"proxy-{name}", f"proxy:{name}", 2_000 if medium == "memory" else 1_000, 100_000))
    cases = [
        ShmemCase(f"{name}-8B-{kind}", kind, unit, path, size=8, times=times)
        for name, path, few, many in ways
        for kind, unit, times in (("latency", "us", few), ("rate", "M/s", many))
    ]
    return [*cases, ShmemCase("emu0-8B-right", "right", "puts", "emu0", size=8, times=2_000)]


def names() -> list[list[str]]:
    """Return the names of the cases on host memory and on GPUs."""
    return [[case.name for case in cases] for cases in (CASES, GPU_CASES)]


# The yardstick of an operation: its name in pybind/bench.go, and how results name it.
_RAW = {"put": ("memcpy", "memcpy"), "get": ("memcpy_from", "memcpy"), "put_quiet": ("store", "store instruction")}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--initiated",
        action="store_true",
        help="puts that GPU kernels post, by stores, proxies and the emulated NIC; --gpus cpu for "
        f"threads of the CPU; cases: {', '.join(case.name for case in initiated_cases())}",
    )


def suite(args: argparse.Namespace) -> Suite:
    """Return the selected cases. Raises ValueError for bad arguments, Unavailable without a GPU."""
    if args.initiated:
        return Initiated(args)
    return GPUShmem(args) if args.device == "gpu" else Shmem(args)


class Shmem(Suite):
    """Operations on host memory. They are compared with OpenSHMEM if it is installed or named."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases, self.runs = pick(CASES, args.cases), 3 if args.quick else 50
        how = [f"each the fastest of {self.runs} runs", "raw limits take turns", "moved bytes are compared"]
        how.append("each PE on a core of its own where there are enough")
        if args.cases is None and (reason := openshmem.missing()):
            cases = [case for case in cases if case.form != "openshmem"]
            how.append(f"no OpenSHMEM to compare with: {reason}")
        super().__init__(cases, how, {"runs": self.runs}, args.quick)
        self._group: Group | None = None

    def start(self) -> None:
        self._library = self.enter_context(contextlib.closing(Library()))
        self._groups = self.enter_context(contextlib.ExitStack())

    def plan(self, case: ShmemCase) -> tuple[str, Plan]:
        if self._group is None or self._group.size != case.pes:
            self._groups.close()
            self._group = self._groups.enter_context(Group(PE, case.pes, _HEAP))
        path = _mapped(self._group)
        form = "python" if case.form == "python" else "native"
        plan = (self._barrier if case.kind == "barrier" else self._move)(case, self._group, form, int(case.times))
        if case.form == "openshmem":
            measure = partial(self._library.measure, case.kind, case.size, int(case.times), self.runs)
            plan.raws = {"OpenSHMEM": lambda: _figure(case, measure())}
        plan.extra["form"] = case.form
        return path, plan

    def _barrier(self, case: ShmemCase, group: Group, form: str, rounds: int) -> Plan:
        """All PEs enter barriers in a row: nanoseconds at PE 0."""
        runs = self.runs if case.pes == 2 else min(self.runs, 10)
        raw = {"spinning flags": lambda: float(group.each("raw_barrier", rounds, runs)[0])}
        return Plan(lambda: float(group.each(form, "barrier", 0, 0, rounds, runs)[0]), raw)

    def _move(self, case: ShmemCase, group: Group, form: str, rounds: int) -> Plan:
        """PE 0 moves bytes to or from PE 1, or changes a word of it."""
        runs, n = self.runs, case.size
        raw, raw_name = _RAW.get(case.kind, (case.kind, f"{case.kind} instruction"))

        def turn(form: str, what: str) -> float:
            if case.both:
                figures = group.each("at_once", form, what, n, rounds, runs)
                return _figure(case, min(map(max, *figures)))
            return _figure(case, group.one(0, form, what, n, 1, rounds, runs))

        plan = Plan(lambda: turn(form, case.kind), {raw_name: lambda: turn("raw", raw)})
        if case.kind in ("put", "put_quiet", "get"):
            return _checked(plan, group, case.kind == "get", n, {0: 0} if n < GRANULE else None)
        made = rounds * runs * (2 if case.both else 1)
        plan.prepare = lambda: group.one(1, "symmetric.wipe")
        plan.verify = lambda: int(group.one(1, "word") != made)
        return plan


def _mapped(group: Group) -> str:
    """Return how PE 0 reaches PE 1. Raises Unavailable if that is no mapping."""
    path = str(group.one(0, "paths")[1])
    if path != "mapped":
        raise Unavailable(f"PE 1 is reached by {path}: there is no mapping to measure on")
    return path


def _checked(plan: Plan, group: Group, get: bool, size: int, holds: dict[int, int] | None = None) -> Plan:
    """Fill the source, and let the plan wipe and verify the destination: see `Blocks.wrong`."""
    group.one(int(get), "symmetric.fill" if get else "own.fill")
    to, which = (0, "own") if get else (1, "symmetric")
    plan.prepare = lambda: group.one(to, f"{which}.wipe")
    plan.verify = lambda: int(group.one(to, f"{which}.wrong", size, holds))
    return plan


def _figure(case: ShmemCase, ns: float) -> float:
    """Return the case's figure from the nanoseconds of a round."""
    return case.size / ns if case.unit == "GB/s" else ns / 1e3 if case.unit == "us" else ns


class GPUShmem(Suite):
    """Symmetric memory on GPUs, used by calls of the host."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases, most = pick(GPU_CASES, args.cases), MIB if args.quick else 64 * MIB
        self._gpus, self._room = gpus.choose(args.gpus), 4 * most
        self._pes = max(2, len(self._gpus.numbers))
        clocks = "calls by the clock of their caller, barriers and memcpy by events"
        how = [*self._gpus.how(), f"{self._pes} PEs", clocks, "moved bytes are compared"]
        cases = [replace(case, size=min(case.size, most)) for case in cases]
        super().__init__(cases, how, {"quick": args.quick}, args.quick)

    def start(self) -> None:
        numbers = list(self._gpus.numbers)
        self._group = self.enter_context(Group(GPUPE, self._pes, 2 * self._room, numbers, self._room))

    def plan(self, case: ShmemCase) -> tuple[str, Plan]:
        path = _mapped(self._group)
        plans = {"barrier": self._barrier, "signal": self._signal}
        plan = plans.get(case.kind, self._move)(case, self._group, int(case.times))
        plan.extra.update(self._gpus.facts(self._pes if case.kind == "barrier" else 2))
        return path, plan

    def _barrier(self, case: ShmemCase, group: Group, rounds: int) -> Plan:
        group.each("own.fill")
        return Plan(
            lambda: max(group.each("barriers", rounds, not case.name.endswith("-calls"))) * 1e6,
            prepare=lambda: group.each("symmetric.wipe"),
            verify=lambda: sum(group.each("not_carried")),
            extra={"pes": self._pes},
        )

    def _signal(self, case: ShmemCase, group: Group, rounds: int) -> Plan:
        """Kernels of PEs 0 and 1 answer each other. On one GPU they take turns of a millisecond."""
        rounds = rounds if len(self._gpus.numbers) > 1 else 20
        return Plan(lambda: _figure(case, group.each("signals", rounds)[0]))

    def _move(self, case: ShmemCase, group: Group, rounds: int) -> Plan:
        """PE 0 moves bytes to or from PE 1."""
        alone = case.unit == "us"

        def turn(method: str) -> float:
            return _figure(case, float(group.one(0, method, case.kind, case.size, rounds, alone)) * 1e9)

        plan = Plan(partial(turn, "moves"), {"memcpy and wait" if alone else "memcpy": partial(turn, "copies")})
        return _checked(plan, group, case.kind == "get", case.size)


class Initiated(Suite):
    """Puts that kernels post. A proxy's yardstick is the host's own posts over its provider."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases, facts = pick(initiated_cases(), args.cases), {"quick": args.quick}
        how = ["puts by kernels, by the GPU's clock", "raw: the host's own posts", "moved bytes are compared"]
        if args.gpus == _CPU:
            self._places, self._used = (_CPU, _CPU), 0
            how.append("the GPUs are threads of the CPU: the figures are not a GPU's")
            facts.update(device="CPU threads", emulated=True)
        else:
            try:
                chosen = gpus.choose(args.gpus)
            except Unavailable as err:
                raise Unavailable(f"{err}; --gpus cpu uses threads of the CPU instead") from None
            known = {info.device: f"{info.api.lower()}:{info.ordinal}" for info in device.devices()}
            self._places, self._used = (known[chosen.pair[0]], known[chosen.pair[1]]), len(set(chosen.pair))
            how += chosen.how()
            facts.update(device=chosen.names[0], emulated=chosen.emulated)
        super().__init__(cases, how, facts, args.quick)

    def plan(self, case: ShmemCase) -> tuple[str, Plan]:
        extra: dict[str, object] = {"gpus": self._used, "puts": int(case.times)}

        def figure(host: bool) -> float:
            ns = self._ns(case, int(case.times), host)
            if case.kind == "right":  # all arrived, or _ns raised
                return case.times
            return 1e3 / ns if case.kind == "rate" else _figure(case, ns)

        plan = Plan(lambda: figure(False), extra=extra)
        if str(case.path).startswith("proxy"):
            plan.raws = {"the host's posts": lambda: figure(True)}
        return str(case.path), plan

    def _ns(self, case: ShmemCase, count: int, host: bool) -> float:
        """Return the nanoseconds of a put. In a latency case one thread waits for each put."""
        each = case.kind == "latency"
        blocks, threads = (1, 1) if each else (1, 4) if _CPU in self._places else (8, 128)
        args = (case.path, *self._places, case.size, count, blocks, threads, each, host)
        try:
            return float(_core.call("BenchPuts", *args))
        except _errors.MoriError as err:
            if "wrong bytes arrived" in str(err):
                raise WrongBytes(f"{case.name}: {err}") from None
            raise Unavailable(str(err)) from None
