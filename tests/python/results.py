# SPDX-License-Identifier: MIT
"""Write the outcome of each test to a file as it ends: pytest's --results, which tools/testlog.py reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

STATUS = {"passed": "pass", "failed": "fail", "skipped": "skip"}


def text_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason of a skip, or a failure with what the test printed, or nothing."""
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    if report.outcome != "failed":
        return ""
    printed = "".join(f"--- {title} ---\n{content}\n" for title, content in report.sections)
    return f"{report.longreprtext}\n{printed}"


class Recorder:
    """Appends one JSON object a line: the test, its phase, status and seconds, and why it failed or was skipped."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")

    def _write(self, report: pytest.TestReport | pytest.CollectReport, phase: str, seconds: float) -> None:
        entry = {"test": report.nodeid, "phase": phase, "status": STATUS[report.outcome], "seconds": seconds,
                 "text": text_of(report)}
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()  # a run that is killed leaves what it knows

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._write(report, report.when, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self._write(report, "collect", 0.0)

    def pytest_unconfigure(self) -> None:
        self._file.close()
