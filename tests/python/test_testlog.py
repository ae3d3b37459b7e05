# SPDX-License-Identifier: MIT
"""What tools/testlog.py makes of the output of go test and of pytest."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def testlog(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    import testlog

    yield testlog
    del sys.modules["testlog"]


def event(action: str, test: str = "", text: str = "", **more: Any) -> str:
    fields = {"Action": action, "Package": "mori/x", **({"Test": test} if test else {}), **more}
    return json.dumps({**fields, **({"Output": text} if text else {})})


def outcomes(testlog: Any, *lines: str) -> dict[str, tuple[str, str]]:
    log = testlog.GoLog()
    for line in lines:
        log.add(line)
    return {o.name: (o.status, o.reason) for o in log.outcomes()}


def test_a_parent_of_failed_subtests_is_not_counted_twice(testlog: Any) -> None:
    assert outcomes(
        testlog,
        event("run", "TestA"), event("run", "TestA/one"), event("output", "TestA/one", "    a_test.go:3: 1, not 2\n"),
        event("output", "TestA", "--- FAIL: TestA (0.00s)\n"),
        event("fail", "TestA/one"), event("run", "TestA/two"), event("pass", "TestA/two"), event("fail", "TestA"),
        event("fail"),
    ) == {"TestA/one": ("fail", "a_test.go:3: 1, not 2"), "TestA/two": ("pass", "(no output)")}


def test_a_skip_has_its_reason_without_the_line_number(testlog: Any) -> None:
    text = "    b_test.go:9: no <infiniband/verbs.h>\n"
    assert outcomes(testlog, event("run", "TestB"), event("output", "TestB", "=== RUN   TestB\n"),
                    event("output", "TestB", text), event("skip", "TestB"), event("pass")) == {
        "TestB": ("skip", "no <infiniband/verbs.h>")}


def test_a_program_that_ends_within_a_test_fails_that_test(testlog: Any) -> None:
    assert outcomes(testlog, event("run", "TestC"), event("output", "TestC", "=== RUN   TestC\n"),
                    event("output", "", "panic: boom\n"), event("fail")) == {"TestC": ("fail", "panic: boom")}


def test_a_package_that_does_not_compile_fails(testlog: Any) -> None:
    build = json.dumps({"Action": "build-output", "ImportPath": "mori/x.test", "Output": "x.go:1:2: undefined: y\n"})
    assert outcomes(testlog, build, event("fail", FailedBuild="mori/x.test")) == {
        "": ("fail", "x.go:1:2: undefined: y")}


def test_the_worst_phase_of_a_python_test_counts(testlog: Any) -> None:
    def line(test: str, phase: str, status: str, text: str = "") -> str:
        return json.dumps({"test": test, "phase": phase, "status": status, "seconds": 1, "text": text})

    ended = testlog.python_outcomes([
        line("t.py::a", "call", "pass"), line("t.py::a", "teardown", "fail", "def a():\nE   left open\n"),
        line("t.py::b[x]", "setup", "skip", "torch is not installed"), '{"test": "t.py::c", "pha',
    ])
    assert [(o.name, o.status, o.reason) for o in ended] == [
        ("a", "fail", "E   left open"), ("b[x]", "skip", "torch is not installed")]
