# SPDX-License-Identifier: MIT
"""Outcomes of the cases."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import figures
from cases import Case
from steps import tail

# What node says; with several nodes the VM puts the node's number in front.
LINE = re.compile(r"(?:\[(\d+)\] )?@ (begin|end) (\S+)(?: (\d+))?$")
# timeout(1) ended it, or had to kill it.
TIMED_OUT = (124, 137)


@dataclass
class Outcome:
    """The outcome of one case."""

    name: str
    what: str
    nodes: int
    result: str  # "ok", "skipped: why", or what went wrong
    seconds: float = 0
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def well(self) -> bool:
        return self.result == "ok" or self.result.startswith("skipped")


class Journal:
    """Follows cases while they run, and reports the result."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.done: dict[str, Outcome] = {}

    @property
    def well(self) -> bool:
        return all(outcome.well for outcome in self.done.values())

    def skip(self, case: Case, reason: str) -> None:
        self._note(case, f"skipped: {reason}")

    def none_began(self, cases: list[Case]) -> None:
        for case in cases:
            self._note(case, "not run: no machine came up")

    def follow(self, cases: list[Case], lines: Iterable[str]) -> None:
        """Read node's output until it ends. If the machine died, record at which case."""
        by_name = {case.name: case for case in cases}
        began: dict[str, float] = {}
        statuses: dict[str, list[int]] = {}
        for line in lines:
            found = LINE.match(line.rstrip())
            if found is None:
                continue
            _, event, name, status = found.groups()
            if event == "begin":
                began.setdefault(name, time.monotonic())
                continue
            case = by_name[name]
            ended = statuses.setdefault(name, [])
            ended.append(int(status))
            if len(ended) == case.nodes:
                self._end(case, ended, time.monotonic() - began[name])
        for name, since in began.items():
            if name not in self.done:
                self._note(by_name[name], "the machine died", time.monotonic() - since)

    def _end(self, case: Case, statuses: list[int], seconds: float) -> None:
        if any(status in TIMED_OUT for status in statuses):
            self._note(case, f"stopped after {case.limit:.0f} s", seconds)
        elif any(statuses):
            self._note(case, f"exit status {max(statuses)}", seconds)
        elif case.figures is None:
            self._note(case, "ok", seconds)
        else:
            try:
                self._note(case, "ok", seconds, case.figures(self.log(case.name)))
            except ValueError as err:
                self._note(case, f"no result: {err}", seconds)

    def _note(self, case: Case, result: str, seconds: float = 0, found: dict[str, float] | None = None) -> None:
        self.done[case.name] = Outcome(case.name, case.what, case.nodes, result, round(seconds, 1), found or {})
        print(f"{seconds:7.1f} s  {case.name}: {result}", flush=True)

    def log(self, name: str) -> str:
        """What a case printed, on all its nodes."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.out.glob(f"{name}.[0-9]*.log")))

    def rows(self) -> list[dict[str, object]]:
        return [asdict(outcome) for outcome in self.done.values()]

    def failures(self) -> str:
        """The end of the output of each failed case."""
        return "".join(f"\n=== {outcome.name}: {outcome.result}\n{tail(self.log(outcome.name))}\n"
                       for outcome in self.done.values() if not outcome.well)

    def table(self, where: str) -> str:
        """What each case did, and how many did well."""
        lines = [f"\n{'case':16} {'seconds':>7}  {'result':24} {'what':52} figures"]
        lines += [f"{outcome.name:16} {outcome.seconds:7.1f}  {outcome.result:24} {outcome.what:52} "
                  f"{figures.words(outcome.figures)}".rstrip() for outcome in self.done.values()]
        bad = [outcome for outcome in self.done.values() if not outcome.well]
        lines.append(f"{len(self.done) - len(bad)} of {len(self.done)} cases well, in: {where}")
        return "\n".join(lines) + "\n"
