# SPDX-License-Identifier: MIT
"""`mori bench shmem`: operations of mori.shmem between processes of this host."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mori import _core, _errors, device

from . import gpus
from .gpus import L2_BYTES
from .harness import MIB, Case, Plan, Suite, Target, Unavailable, WrongBytes, at_least, at_most, pick
from .process import Group
from .raw import openshmem
from .raw.openshmem import Library
from .shmem_pe import GPUPE, PE

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
    """`kind` is the operation. A run makes `rounds` of them between `pes` PEs.

    `form` is what is measured, or compared with; `both`: two PEs operate on the same word all the time.
    `path` names the path of puts that kernels post.
    """

    form: Form = "native"
    pes: int = 2
    rounds: int = 1
    both: bool = False


def _forms(name: str, kind: str, size: int, rounds: int, native: Target, python: Target | None) -> Iterator[ShmemCase]:
    big = size == MIB
    peer = at_least(1.0) if big else at_most(1.0)
    forms: tuple[tuple[Form, Target | None], ...] = (("native", native), ("python", python), ("openshmem", peer))
    for form, target in forms:
        suffix, unit = "" if form == "native" else f"-{form}", "GB/s" if big else "ns"
        yield ShmemCase(name + suffix, kind, unit, size=size, target=target, form=form, rounds=rounds)


def _host_cases() -> Iterator[ShmemCase]:
    fast, atomic, small = at_least(0.9), at_most(1.5), at_most(1000, "ns")
    yield from _forms("put-1MiB", "put", MIB, 20, fast, fast)
    yield from _forms("get-1MiB", "get", MIB, 20, fast, fast)
    yield from _forms("put-8B-quiet", "put_quiet", 8, 5000, small, small)
    yield from _forms("fetch-add", "fetch_add", 8, 5000, atomic, None)
    yield ShmemCase("swap", "swap", "ns", size=8, target=atomic, rounds=5000)
    yield ShmemCase("compare-swap", "compare_swap", "ns", size=8, target=atomic, rounds=5000)
    yield ShmemCase("fetch-add-both", "fetch_add", "ns", size=8, target=atomic, rounds=50_000, both=True)
    yield from _forms("barrier-2", "barrier", 0, 2000, at_most(2.0), None)
    yield ShmemCase("barrier-4", "barrier", "ns", pes=4, rounds=200)
    yield ShmemCase("barrier-8", "barrier", "ns", pes=8, rounds=100)


def _gpu_cases() -> Iterator[ShmemCase]:
    big, size = at_least(0.9), 64 * MIB
    barrier = "barrier-on-stream"
    yield ShmemCase(barrier, "barrier", "us", target=at_most(5, "us"), rounds=200, predicted="4.5 us")
    yield ShmemCase(f"{barrier}-calls", "barrier", "us", rounds=200, predicted="8 us")
    yield ShmemCase(
        "put-signal-8B", "signal", "us", size=8, target=at_most(2, "us"), rounds=2000, predicted="2.7 us"
    )
    yield ShmemCase("gpu-put-64MiB", "put", "GB/s", size=size, target=big, rounds=16, predicted="370 GB/s")
    yield ShmemCase("gpu-get-64MiB", "get", "GB/s", size=size, target=big, rounds=16, predicted="365 GB/s")
    yield ShmemCase("gpu-put-8B", "put", "us", size=8, rounds=500, predicted="11 us")


def _initiated_cases() -> Iterator[ShmemCase]:
    """Puts that kernels post: stores, a proxy of the host, the emulated NIC (correctness only)."""
    for name, path, few, many in (
        ("stores", "stores", 20_000, 1_000_000),
        ("proxy-shm", "proxy:shm", 2_000, 100_000),
        ("proxy-tcp", "proxy:tcp", 1_000, 100_000),
    ):
        yield ShmemCase(f"{name}-8B-latency", "latency", "us", path, size=8, rounds=few)
        yield ShmemCase(f"{name}-8B-rate", "rate", "M/s", path, size=8, rounds=many)
    yield ShmemCase("emu0-8B-right", "right", "puts", "emu0", size=8, rounds=2_000)


CASES, GPU_CASES, INITIATED_CASES = tuple(_host_cases()), tuple(_gpu_cases()), tuple(_initiated_cases())
NAMES, GPU_NAMES, INITIATED_NAMES = ([case.name for case in some] for some in (CASES, GPU_CASES, INITIATED_CASES))

# The yardstick of an operation: its name in pybind/bench.go, and how results name it.
_RAW = {"put": ("memcpy", "memcpy"), "get": ("memcpy_from", "memcpy"), "put_quiet": ("store", "store instruction")}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--initiated",
        action="store_true",
        help="puts that GPU kernels post themselves, by stores, proxies and the emulated NIC; "
        f"--gpus cpu for threads of the CPU; cases: {', '.join(INITIATED_NAMES)}",
    )


def suite(args: argparse.Namespace) -> Suite:
    """Return the selected cases. Raises ValueError for bad arguments, Unavailable without a GPU."""
    if args.initiated:
        return Initiated(args)
    return GPUShmem(args) if args.device == "gpu" else Shmem(args)


class Shmem(Suite):
    """Operations on host memory. They are compared with OpenSHMEM if it is installed or named."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases, self._quick, self.runs = pick(CASES, args.cases), args.quick, 3 if args.quick else 50
        how = [f"each the fastest of {self.runs} runs", "raw limits take turns", "moved bytes are compared"]
        how.append("each PE on a core of its own where there are enough")
        if args.cases is None and (reason := openshmem.missing()):
            cases = [case for case in cases if case.form != "openshmem"]
            how.append(f"no OpenSHMEM to compare with: {reason}")
        super().__init__(cases, how, {"runs": self.runs})
        self._group: Group | None = None

    def start(self) -> None:
        self._library = self.enter_context(contextlib.closing(Library()))
        self._groups = self.enter_context(contextlib.ExitStack())

    def plan(self, case: ShmemCase) -> tuple[str, Plan]:
        if self._group is None or self._group.size != case.pes:
            self._groups.close()
            self._group = self._groups.enter_context(Group(PE, case.pes, _HEAP))
        path = self._group.one(0, "paths")[1]
        if path != "mapped":
            raise Unavailable(f"PE 1 is reached by {path}: there is no mapping to measure on")
        rounds = max(1, case.rounds // 50) if self._quick else case.rounds
        form = "python" if case.form == "python" else "native"
        plan = (self._barrier if case.kind == "barrier" else self._move)(case, self._group, form, rounds)
        if case.form == "openshmem":
            measure = self._library.measure
            plan.raws = {"OpenSHMEM": lambda: _figure(case, measure(case.kind, case.size, rounds, self.runs))}
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
            return _checked(plan, group, case.kind == "get", n)
        made = rounds * runs * (2 if case.both else 1)
        plan.prepare = lambda: group.one(1, "wipe", "symmetric")
        plan.verify = lambda: int(group.one(1, "word") != made)
        return plan


def _checked(plan: Plan, group: Group, get: bool, size: int) -> Plan:
    """Fill the source, and let the plan wipe and verify the destination."""
    group.one(int(get), "fill", "symmetric" if get else "own")
    to, which = (0, "own") if get else (1, "symmetric")
    plan.prepare = lambda: group.one(to, "wipe", which)
    plan.verify = lambda: int(group.one(to, "wrong", which, size))
    return plan


def _figure(case: ShmemCase, ns: float) -> float:
    """Return the case's figure from the nanoseconds of a round."""
    return case.size / ns if case.unit == "GB/s" else ns


class GPUShmem(Suite):
    """Symmetric memory on GPUs, used by calls of the host."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases = pick(GPU_CASES, args.cases)
        self._gpus, self._quick = gpus.choose(args.gpus), args.quick
        self._pes = max(2, len(self._gpus.numbers))
        clocks = "calls by the clock of their caller, barriers and memcpy by events"
        how = [*self._gpus.how(), f"{self._pes} PEs", clocks, "moved bytes are compared"]
        super().__init__(cases, how, {"quick": args.quick})

    def start(self) -> None:
        room = 4 * MIB if self._quick else 4 * L2_BYTES
        self._group = self.enter_context(Group(GPUPE, self._pes, 2 * room, list(self._gpus.numbers), room))

    def plan(self, case: ShmemCase) -> tuple[str, Plan]:
        path = self._group.one(0, "paths")[1]
        if not self._group.one(0, "mapped"):
            raise Unavailable(f"PE 1 is reached by {path}: there is no mapping to measure on")
        rounds = max(2, case.rounds // 50) if self._quick else case.rounds
        plans = {"barrier": self._barrier, "signal": self._signal}
        plan = plans.get(case.kind, self._move)(case, self._group, rounds)
        plan.extra.update(self._gpus.facts(self._pes if case.kind == "barrier" else 2))
        return path, plan

    def _barrier(self, case: ShmemCase, group: Group, rounds: int) -> Plan:
        group.each("fill", "own")
        return Plan(
            lambda: max(group.each("barriers", rounds, not case.name.endswith("-calls"))) * 1e6,
            prepare=lambda: group.each("wipe", "symmetric"),
            verify=lambda: sum(group.each("not_carried")),
            extra={"pes": self._pes},
        )

    def _signal(self, case: ShmemCase, group: Group, rounds: int) -> Plan:
        """Kernels of PEs 0 and 1 answer each other. On one GPU they take turns of a millisecond."""
        rounds = rounds if len(self._gpus.numbers) > 1 else 20
        return Plan(lambda: float(group.each("signals", rounds)[0]) / 1e3)

    def _move(self, case: ShmemCase, group: Group, rounds: int) -> Plan:
        """PE 0 moves bytes to or from PE 1."""
        size, stream = min(case.size, MIB) if self._quick else case.size, case.unit == "GB/s"
        method = "stream" if stream else "latency"

        def figure(name: str) -> float:
            seconds = float(group.one(0, name, case.kind, size, rounds))
            return size / seconds / 1e9 if stream else seconds * 1e6

        raw = {"memcpy" if stream else "memcpy and wait": lambda: figure(f"raw_{method}")}
        plan = Plan(lambda: figure(method), raw)
        return _checked(plan, group, case.kind == "get", size)


class Initiated(Suite):
    """Puts that kernels post. A proxy's yardstick is the host's own posts over its provider."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases, self._quick, facts = pick(INITIATED_CASES, args.cases), args.quick, {"quick": args.quick}
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
        super().__init__(cases, how, facts)

    def plan(self, case: ShmemCase) -> tuple[str, Plan]:
        count = max(32, case.rounds // 50) if self._quick else case.rounds
        extra: dict[str, object] = {"gpus": self._used, "puts": count}

        def figure(host: bool) -> float:
            ns = self._ns(case, count, host)
            if case.kind == "right":  # all arrived, or _ns raised
                return float(count)
            return ns / 1e3 if case.unit == "us" else 1e3 / ns

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
