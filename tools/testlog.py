# SPDX-License-Identifier: MIT
"""Read what test programs report: the events of `go test -json` and the lines of pytest's --results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

# The lines that go test itself writes around the output of a test.
FRAME = re.compile(
    r"^\s*(=== (RUN|PAUSE|CONT|NAME|ATTR)\b|--- (PASS|FAIL|SKIP):)|^(PASS|FAIL|ok  \t|\?   \t)|^exit status \d+$"
)
WHERE = re.compile(r"^\s*[\w./-]+\.go:\d+: ")
REASON = re.compile(r"^E\s|panic: |fatal error: |WARNING: DATA RACE|\.go:\d+: ")


@dataclass
class Outcome:
    """How one test ended. `name` is empty for a whole package or module that failed outside its tests."""

    package: str
    name: str
    status: str  # "pass", "fail" or "skip"
    seconds: float = 0.0
    output: str = ""

    @property
    def title(self) -> str:
        """The package and the test, as a table shows them."""
        return f"{self.package} {self.name or '(package)'}"

    @property
    def reason(self) -> str:
        """The first line that says why the test failed or was skipped."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip() and not FRAME.match(line)]
        for line in lines:
            if REASON.search(line):
                return WHERE.sub("", line) if self.status == "skip" else line
        return lines[0] if lines else "(no output)"


@dataclass
class GoPackage:
    """The events of one package: the output of each test and which tests have subtests."""

    name: str
    output: dict[str, list[str]] = field(default_factory=dict)
    ended: dict[str, Outcome] = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)

    def add(self, event: dict[str, Any]) -> Outcome | None:
        """Take one event; return the outcome of the package when the event ends it."""
        action, test = event["Action"], event.get("Test", "")
        if action == "output":
            self.output.setdefault(test, []).append(event.get("Output", ""))
        elif action == "run" and "/" in test:
            self.parents.add(test.rpartition("/")[0])
        elif action in ("pass", "fail", "skip"):
            text = "".join(self.output.get(test, []))
            self.ended[test] = Outcome(self.name, test, action, event.get("Elapsed", 0.0), text)
            if not test:
                return self.ended[test]
        return None

    def outcomes(self) -> Iterator[Outcome]:
        """The tests without subtests, a parent that failed by itself, and a package that failed outside its tests."""
        failed = False
        for test, outcome in self.ended.items():
            if not test:
                continue
            if outcome.status == "fail":
                below = any(o.status == "fail" for t, o in self.ended.items() if t.startswith(test + "/"))
                failed = True
                if below and not self.says_why(test):
                    continue
            elif test in self.parents:
                continue
            yield outcome
        whole = self.ended.get("")
        if whole is not None and whole.status == "fail" and not failed:
            # A test that was running when the program ended has no end of its own.
            open_tests = [t for t in self.output if t and t not in self.ended]
            text = "".join("".join(lines) for t, lines in self.output.items() if not t or t in open_tests)
            yield Outcome(self.name, open_tests[-1] if open_tests else "", "fail", whole.seconds, text)

    def says_why(self, test: str) -> bool:
        """Report whether a test had an error of its own, besides those of its subtests."""
        return any(WHERE.match(line) for line in self.output.get(test, []))


class GoLog:
    """The events of a `go test -json` of several packages."""

    def __init__(self) -> None:
        self.packages: dict[str, GoPackage] = {}
        self.build: dict[str, list[str]] = {}

    def add(self, line: str) -> Outcome | None:
        """Take one line of output; return the outcome of a package when the line ends it."""
        try:
            event = json.loads(line)
        except ValueError:
            self.build.setdefault("", []).append(line)
            return None
        if event["Action"].startswith("build-"):
            if event["Action"] == "build-output":
                self.build.setdefault(event["ImportPath"], []).append(event["Output"])
            return None
        name = event.get("Package", "")
        package = self.packages.setdefault(name, GoPackage(name))
        whole = package.add(event)
        if whole is not None and (why := event.get("FailedBuild")):
            whole.output = "".join(self.build.get(why, [])) + whole.output
            package.output[""] = [whole.output]
        return whole

    def outcomes(self) -> list[Outcome]:
        """The outcomes of all tests of all packages."""
        return [outcome for package in self.packages.values() for outcome in package.outcomes()]


def python_outcomes(lines: Iterable[str]) -> list[Outcome]:
    """The outcomes in a file that pytest wrote for --results; the worst of a test's set-up, call and end counts."""
    worst: dict[str, Outcome] = {}
    rank = {"pass": 0, "skip": 1, "fail": 2}
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the last line of a run that was killed
        path, _, name = entry["test"].partition("::")
        outcome = Outcome(path, name, entry["status"], entry["seconds"], entry["text"])
        before = worst.get(entry["test"])
        if before is None or rank[outcome.status] > rank[before.status]:
            worst[entry["test"]] = outcome
    return list(worst.values())
