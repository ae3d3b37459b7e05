# SPDX-License-Identifier: MIT
"""Runs a case: our transfer and its raw limits take turns, so that a busy machine slows both alike.

Every turn gets a wiped destination; after each turn of ours all its bytes are compared with what the source holds.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .cases import Case

Turn = Callable[[], float]


class WrongBytes(RuntimeError):
    """A transfer reported success and left bytes at the destination that the source does not hold."""


@dataclass
class Plan:
    """What one case does. Turns return the figure in the case's unit for one sample.

    `best` picks the stronger of several raw limits (max for GB/s, min for times). `finish` says what else there is to
    tell of the figure and the samples of the raw limits.
    """

    ours: Turn
    raws: dict[str, Turn] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None
    verify: Callable[[], int] = lambda: 0
    best: Callable[[list[float]], float] = max
    primary: str | None = None
    repeats: int | None = None
    extra: dict[str, object] = field(default_factory=dict)
    finish: Callable[[float, dict[str, list[float]]], dict[str, object]] | None = None


@dataclass
class Result:
    """The figures of a case: medians, with every sample kept."""

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
        """The figure that the target asks for; None without a target, or without what it is relative to."""
        target = self.case.target
        if target is None or target.of == "value":
            return target.bound if target else None
        return target.bound * self.raw if self.raw else None

    def as_dict(self) -> dict[str, object]:
        return {
            "case": self.case.name,
            "path": self.path,
            "bytes": self.case.bytes,
            "value": _short(self.value),
            "unit": self.case.unit,
            "raw": _short(self.raw),
            "ratio": _short(self.ratio),
            "target": str(self.case.target) if self.case.target else None,
            "ok": self.ok,
            "samples": [_short(s) for s in self.samples],
            "raw_samples": {name: [_short(s) for s in some] for name, some in self.raw_samples.items()},
            **self.extra,
        }


def _short(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.5g}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection inside: it would be charged to whoever happens to run."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def run(case: Case, path: str, plan: Plan, repeats: int, tick: Callable[[float], object]) -> Result:
    """One warm-up round that is dropped, then `repeats` rounds. Tells tick after each what share of the case it was."""
    rounds = (plan.repeats or repeats) + 1
    turns = {"": plan.ours, **plan.raws}
    samples: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds):
        for name in _rotated(list(turns), number):
            plan.prepare()
            with quiet():
                figure = turns[name]()
            if number:
                samples[name].append(figure)
            if name == "":
                _demand_right_bytes(case, plan)
        tick(1 / rounds)
    ours = samples.pop("")
    medians = {name: statistics.median(some) for name, some in samples.items()}
    raw = medians[plan.primary] if plan.primary else plan.best(list(medians.values())) if medians else None
    value = statistics.median(ours)
    if plan.finish is not None:
        plan.extra.update(plan.finish(value, samples))
    return Result(case, path, value, raw, ours, samples, plan.extra)


def _rotated(names: list[str], number: int) -> list[str]:
    first = number % len(names)
    return names[first:] + names[:first]


def _demand_right_bytes(case: Case, plan: Plan) -> None:
    wrong = plan.verify()
    if wrong:
        raise WrongBytes(f"{case.name}: {wrong} blocks differ from their source after a transfer that succeeded")
