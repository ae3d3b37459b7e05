# SPDX-License-Identifier: MIT
"""The harness of all suites: cases and their targets, plans, and the loop that measures them."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import operator
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from mori import _core

KIB, MIB = 1 << 10, 1 << 20
Turn = Callable[[], float]


class Unavailable(RuntimeError):
    """The machine lacks what a case measures or compares with."""


class TransferFailed(RuntimeError):
    """A transfer of the benchmark ended with an error."""


class WrongBytes(RuntimeError):
    """A transfer reported success and left bytes that differ from the source."""


@functools.cache
def providers() -> dict[str, str]:
    """Return what carries the bytes of each registered provider: memory, gpu, nic or socket."""
    return {one["name"]: one["medium"] for one in json.loads(_core.call("BenchProviders"))}


@dataclass(frozen=True)
class Target:
    """A bound on the ratio to the yardstick, or on the value itself."""

    of: Literal["ratio", "value"]
    sense: Literal[">=", "<="]
    bound: float
    unit: str = ""

    def met(self, value: float, ratio: float | None) -> bool | None:
        """Return None if the figure that the target bounds was not measured."""
        figure = value if self.of == "value" else ratio
        meets = operator.ge if self.sense == ">=" else operator.le
        return None if figure is None else meets(figure, self.bound)

    def __str__(self) -> str:
        bound = f"{self.bound:.2f} x raw" if self.of == "ratio" else f"{self.bound:g} {self.unit}"
        return f"{self.sense} {bound}"


def at_least(ratio: float) -> Target:
    return Target("ratio", ">=", ratio)


def at_most(bound: float, unit: str = "") -> Target:
    return Target("value" if unit else "ratio", "<=", bound, unit)


class Point(NamedTuple):
    """Where a plot has a case: on which line, at which number of what. Cases without are bars."""

    over: str = ""
    at: int = 0
    line: str = ""


@dataclass(frozen=True)
class Case:
    """One measurement. `kind` selects its plan; `predicted` is the figure expected of it.

    A sample consists of `times` operations, transfers or seconds.
    """

    name: str
    kind: str
    unit: str
    path: str | None = None
    entries: int = 1
    size: int = 0
    read: bool = False
    target: Target | None = None
    predicted: str = ""
    times: float = 1

    @property
    def bytes(self) -> int:
        return self.entries * self.size

    @property
    def point(self) -> Point:
        return Point()

    def quick(self) -> Any:
        """Return the case with little work in a sample."""
        return replace(self, times=max(1, self.times // 50))


SomeCase = TypeVar("SomeCase", bound=Case)


def pick(cases: Sequence[SomeCase], names: str | None) -> list[SomeCase]:
    """Return the cases of a comma-separated list, or all. Raises ValueError for unknown names."""
    known = {case.name: case for case in cases}
    if names is None:
        return list(known.values())
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        listed = ", ".join(map(repr, unknown or [names]))
        raise ValueError(f"unknown case {listed}; known: {', '.join(known)}")
    return [known[name] for name in wanted]


@dataclass
class Plan:
    """How to measure a case. Turns return one sample in the case's unit; `raws` are the yardsticks.

    Attributes:
        prepare: wipes the destination before each turn.
        verify: counts the wrong blocks after a turn of mori.
        primary: the yardstick to compare with, instead of the best.
        finish: returns further facts from the value and the medians of the yardsticks.
    """

    ours: Turn
    raws: dict[str, Turn] = field(default_factory=dict)
    prepare: Callable[[], object] = lambda: None
    verify: Callable[[], int] = lambda: 0
    primary: str | None = None
    repeats: int | None = None
    extra: dict[str, object] = field(default_factory=dict)
    finish: Callable[[float, dict[str, float]], dict[str, object]] = lambda value, raws: {}


class Suite(contextlib.ExitStack):
    """The cases of a command. Entering starts the processes that run them; exiting ends them.

    `how` are lines for the heading that say how the figures were measured, `facts` are fields of
    every result.
    """

    def __init__(self, cases: Sequence[Any], how: list[str], facts: dict[str, Any], quick: bool) -> None:
        super().__init__()
        self.cases, self.how, self.facts = [case.quick() if quick else case for case in cases], how, facts

    def __enter__(self) -> Any:
        try:
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def start(self) -> None:
        """Start what the cases need and register it with enter_context."""

    def plan(self, case: Any) -> tuple[str, Plan]:
        """Return the path that the bytes take and the plan. Raises Unavailable."""
        raise NotImplementedError


@dataclass
class Result:
    """The figures of a case: medians and all samples."""

    case: Case
    path: str
    value: float
    raw: float | None
    samples: list[float]
    raw_samples: dict[str, list[float]]
    extra: dict[str, object]

    @property
    def ratio(self) -> float | None:
        return self.value / self.raw if self.raw else None

    @property
    def ok(self) -> bool | None:
        return self.case.target.met(self.value, self.ratio) if self.case.target else None

    def as_dict(self) -> dict[str, object]:
        return {
            "case": self.case.name,
            "path": self.path,
            "bytes": self.case.bytes,
            "value": short(self.value),
            "unit": self.case.unit,
            "raw": short(self.raw),
            "ratio": short(self.ratio),
            "target": str(self.case.target) if self.case.target else None,
            "ok": self.ok,
            "samples": list(map(short, self.samples)),
            "raw_samples": {name: list(map(short, some)) for name, some in self.raw_samples.items()},
            **self.extra,
        }


def short(figure: float | None) -> float | None:
    """Round to five significant digits."""
    return None if figure is None else float(f"{figure:.5g}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suspend garbage collection, which would count in whichever turn it happens to run."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def median_us(call: Callable[[], object], times: int) -> float:
    """Call a function repeatedly and return the median duration in microseconds."""
    clock, spent = time.perf_counter_ns, []
    for _ in range(times):
        start = clock()
        call()
        spent.append(clock() - start)
    return statistics.median(spent) / 1e3


def run(case: Case, path: str, plan: Plan, repeats: int, tick: Callable[[float], object]) -> Result:
    """Run a warm-up round and `repeats` measured ones; mori and its yardsticks take turns.

    Every turn starts with a wiped destination; after each turn of mori the bytes are compared. tick
    gets the share of the case that each round is.
    """
    rounds = (plan.repeats or repeats) + 1
    turns = [("", plan.ours), *plan.raws.items()]
    samples: dict[str, list[float]] = {name: [] for name, _ in turns}
    for number in range(rounds):
        first = number % len(turns)
        for name, turn in turns[first:] + turns[:first]:
            plan.prepare()
            with quiet():
                samples[name].append(turn())
            if not name and (wrong := plan.verify()):
                raise WrongBytes(f"{case.name}: {wrong} blocks differ from their source after a successful transfer")
        tick(1 / rounds)
    samples = {name: some[1:] for name, some in samples.items()}
    medians = {name: statistics.median(some) for name, some in samples.items()}
    ours, value = samples.pop(""), medians.pop("")
    best = max if case.unit.endswith("/s") else min
    raw = medians[plan.primary] if plan.primary else best(medians.values(), default=None)
    return Result(case, path, value, raw, ours, samples, {**plan.extra, **plan.finish(value, medians)})
