# SPDX-License-Identifier: MIT
"""The harness of all suites: cases and their targets, plans, and the loop that measures them."""

from __future__ import annotations

import contextlib
import gc
import operator
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

KIB, MIB = 1 << 10, 1 << 20
Turn = Callable[[], float]


class Unavailable(RuntimeError):
    """The machine lacks what a case measures or compares with."""


class PathUnavailable(Unavailable):
    """The session does not run on the path that a case measures."""


class TransferFailed(RuntimeError):
    """A transfer of the benchmark ended with an error."""


class WrongBytes(RuntimeError):
    """A transfer reported success and left bytes at the destination that differ from the source."""


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
        return None if figure is None else (operator.ge if self.sense == ">=" else operator.le)(figure, self.bound)

    def __str__(self) -> str:
        return f"{self.sense} " + (f"{self.bound:.2f} x raw" if self.of == "ratio" else f"{self.bound:g} {self.unit}")


def at_least(ratio: float) -> Target:
    return Target("ratio", ">=", ratio)


def at_most(bound: float, unit: str = "") -> Target:
    return Target("value", "<=", bound, unit) if unit else Target("ratio", "<=", bound)


@dataclass(frozen=True)
class Case:
    """One measurement. `kind` selects the plan of its suite; `predicted` is the figure expected of
    it.
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

    @property
    def bytes(self) -> int:
        return self.entries * self.size


SomeCase = TypeVar("SomeCase", bound=Case)


def pick(cases: Sequence[SomeCase], names: str | None) -> list[SomeCase]:
    """Return the cases of a comma-separated list, or all. Raises ValueError for unknown names."""
    known = {case.name: case for case in cases}
    wanted = list(known) if names is None else [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise ValueError(f"unknown case {', '.join(map(repr, unknown)) or repr(names)}; known: {', '.join(known)}")
    return [known[name] for name in wanted]


@dataclass
class Plan:
    """How to measure a case. Turns return one sample in the case's unit; `raws` are the yardsticks.

    Attributes:
        prepare: wipes the destination before each turn.
        verify: counts the wrong blocks after a turn of mori.
        best: picks the strongest of several yardsticks, max for GB/s and min for times.
        primary: the yardstick to compare with, instead of the best.
        finish: returns further facts from the value and the samples of the yardsticks.
    """

    ours: Turn
    raws: dict[str, Turn] = field(default_factory=dict)
    prepare: Callable[[], object] = lambda: None
    verify: Callable[[], int] = lambda: 0
    best: Callable[[list[float]], float] = max
    primary: str | None = None
    repeats: int | None = None
    extra: dict[str, object] = field(default_factory=dict)
    finish: Callable[[float, dict[str, list[float]]], dict[str, object]] | None = None


class Suite(contextlib.ExitStack):
    """The cases of a command. Entering starts the processes that run them; exiting ends the processes.

    Attributes:
        cases: the selected cases.
        how: lines for the heading that say how the figures were measured.
        facts: fields of every result.
    """

    def __init__(self, cases: Sequence[Any], how: list[str], facts: dict[str, object]) -> None:
        super().__init__()
        self.cases, self.how, self.facts = cases, how, facts

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

    @property
    def bound(self) -> float | None:
        """The value that the target asks for; None without a target or without its yardstick."""
        target = self.case.target
        if target is None or target.of == "value":
            return target.bound if target else None
        return target.bound * self.raw if self.raw else None

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
            "samples": [short(s) for s in self.samples],
            "raw_samples": {name: [short(s) for s in some] for name, some in self.raw_samples.items()},
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
    """Run one warm-up round and `repeats` measured ones. In each round mori and its yardsticks take turns.

    Every turn starts with a wiped destination; after each turn of mori the bytes are compared. tick
    gets the share of the case that each round is.
    """
    rounds = (plan.repeats or repeats) + 1
    turns = {"": plan.ours, **plan.raws}
    samples: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds):
        first = number % len(turns)
        for name in (names := list(turns))[first:] + names[:first]:
            plan.prepare()
            with quiet():
                figure = turns[name]()
            if number:
                samples[name].append(figure)
            if name == "" and (wrong := plan.verify()):
                raise WrongBytes(f"{case.name}: {wrong} blocks differ from their source after a successful transfer")
        tick(1 / rounds)
    ours = samples.pop("")
    medians = {name: statistics.median(some) for name, some in samples.items()}
    raw = medians[plan.primary] if plan.primary else plan.best(list(medians.values())) if medians else None
    value = statistics.median(ours)
    if plan.finish is not None:
        plan.extra.update(plan.finish(value, samples))
    return Result(case, path, value, raw, ours, samples, plan.extra)
