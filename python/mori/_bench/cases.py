# SPDX-License-Identifier: MIT
"""Cases, what each should reach, and the table of those of `mori bench io`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from .side import Path

MIB = 1 << 20
KIB = 1 << 10
BUFFER_BYTES = 128 * MIB

_COMPARE: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Target:
    """A bound on the ratio to the raw limit, or on the value itself."""

    of: Literal["ratio", "value"]
    sense: Literal[">=", "<="]
    bound: float
    unit: str = ""

    def met(self, value: float, ratio: float | None) -> bool | None:
        """None when the figure that the target speaks of was not measured."""
        figure = value if self.of == "value" else ratio
        return None if figure is None else _COMPARE[self.sense](figure, self.bound)

    def __str__(self) -> str:
        if self.of == "ratio":
            return f"{self.sense} {self.bound:.2f} x raw"
        return f"{self.sense} {self.bound:g} {self.unit}"


@dataclass(frozen=True)
class Case:
    """One measurement; `kind` says which plan makes it. One of io without a path runs on what was asked for."""

    name: str
    kind: str
    unit: str
    path: Path | None = None
    entries: int = 1
    size: int = 0
    read: bool = False
    target: Target | None = None

    @property
    def bytes(self) -> int:
        return self.entries * self.size


def _streams(path: Path, big: float, small: float) -> Iterable[Case]:
    for suffix, read in (("", False), ("-read", True)):
        for entries, size, label, bound in ((128, MIB, "128x1MiB", big), (1024, 4 * KIB, "1024x4KiB", small)):
            target = Target("ratio", ">=", bound)
            yield Case(f"{path}-{label}{suffix}", "stream", "GB/s", path, entries, size, read, target)


def _latency(path: Path, target: Target) -> Iterable[Case]:
    yield Case(f"{path}-8B-latency", "latency", "us", path, 1, 8, False, target)
    yield Case(f"{path}-8B-latency-read", "latency", "us", path, 1, 8, True, target)


CASES: tuple[Case, ...] = (
    *_streams("shm", 0.95, 0.90),
    *_latency("shm", Target("value", "<=", 6, "us")),
    *_streams("verbs", 0.90, 0.80),
    *_latency("verbs", Target("ratio", "<=", 1.5)),
    *_streams("tcp", 0.90, 0.70),
    *_latency("tcp", Target("ratio", "<=", 1.5)),
    Case("submit-1000-lists", "submit", "us", None, 1000, 4 * KIB, False, Target("value", "<=", 60, "us")),
    Case("status-poll", "poll", "ns", None, target=Target("value", "<=", 150, "ns")),
    Case("idle-cpu", "idle", "% of a core", None, target=Target("value", "<=", 1, "% of a core")),
    Case("million-small-leak", "leak", "KiB", None, 1_000_000, 64, False, Target("value", "<=", 8192, "KiB")),
)


SomeCase = TypeVar("SomeCase", bound=Case)


def pick(cases: Sequence[SomeCase], names: str | None) -> list[SomeCase]:
    """The cases of a comma list, all when None. Raises ValueError for unknown names."""
    known = {case.name: case for case in cases}
    wanted = list(known) if names is None else [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise ValueError(f"unknown case {', '.join(map(repr, unknown)) or repr(names)}; known: {', '.join(known)}")
    return [known[name] for name in wanted]


def choose(names: str | None, path: Path | None) -> list[Case]:
    """
    The cases of io in a comma list, less those of the other paths. Raises ValueError for unknown names.

    Those of RDMA devices, which few machines have, are for who asks.
    """
    wanted = [case for case in pick(CASES, names) if names or path or case.path != "verbs"]
    chosen = [case for case in wanted if path is None or case.path in (None, path)]
    if not chosen:
        raise ValueError(f"none of {', '.join(case.name for case in wanted)} runs on path {path}")
    return chosen
