# SPDX-License-Identifier: MIT
"""What tools/run_tests.py prints at the end of make test."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import eventually

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def run_tests(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    import run_tests

    yield run_tests
    del sys.modules["run_tests"]


def count(run_tests: Any, language: str, *outcomes: tuple[str, str, str]) -> Any:
    counted = run_tests.Count(language)
    counted.add(run_tests.Outcome("pkg", name, status, 0.0, text) for name, status, text in outcomes)
    return counted


def test_skips_are_grouped_by_what_they_miss(run_tests: Any) -> None:
    clang = "    b_test.go:9: clang++-19 is not installed\n"
    program = "    c_test.go:9: this is not the process of a PE\n"
    go = count(run_tests, "Go", ("TestA", "pass", ""), ("TestB", "skip", clang), ("TestPE", "skip", program))
    python = count(run_tests, "Python", ("test_c", "skip", "clang++-19 is not installed"),
                   ("test_d", "skip", "mpirun is not installed"), ("test_e", "skip", "the moon is full"))
    assert run_tests.summary([go, python]) == [
        "Go      1 passed, 0 failed, 1 skipped in 0 s",
        "Python  0 passed, 0 failed, 3 skipped in 0 s",
        "skipped",
        "     2  need clang 19: apt-get install clang-19 lld-19",
        "     1  need mpirun: apt-get install openmpi-bin",
        "     1  the moon is full",
        "every test that ran passed",
    ]


@pytest.mark.parametrize("failed", [0, 1, 9, 400])
@pytest.mark.parametrize("reasons", [0, 2, 40])
def test_a_summary_has_at_most_15_lines(run_tests: Any, failed: int, reasons: int) -> None:
    tests = [(f"test_f{i}", "fail", "boom") for i in range(failed)]
    tests += [(f"test_s{i}", "skip", f"reason {i}") for i in range(reasons)]
    lines = run_tests.summary([count(run_tests, "Go"), count(run_tests, "Python", *tests)])
    assert len(lines) <= 15
    assert f"Python  0 passed, {failed} failed, {reasons} skipped in 0 s" in lines
    assert ("pkg test_f0" in "\n".join(lines)) == (failed > 0)
    assert (lines[-1] == "every test that ran passed") == (failed == 0)
    left = [line for line in lines if "more" in line]
    assert sum(int(line.split("and ")[1].split()[0]) for line in left) == \
        failed + reasons - sum("test_f" in line or "reason " in line for line in lines)


CONFTEST = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from results import Recorder

def pytest_addoption(parser):
    parser.addoption("--results")

def pytest_configure(config):
    config.pluginmanager.register(Recorder(Path(config.getoption("--results"))))
"""


def command_for(tmp_path: Path, source: str) -> list[str]:
    """Return the command that runs the Python tests of a file of its own."""
    (tmp_path / "conftest.py").write_text(CONFTEST.format(tests=str(TOOLS.parent / "tests" / "python")))
    test = tmp_path / "test_it.py"
    test.write_text(source)
    command = [sys.executable, str(TOOLS / "run_tests.py"), "--only", "python", "--logs", str(tmp_path / "logs")]
    command += ["--json", str(tmp_path / "summary.json"), "--"]
    return [*command, "-n", "0", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(test)]


def run(tmp_path: Path, source: str) -> tuple[int, str, Any]:
    """Run the Python tests of a file of its own."""
    ended = subprocess.run(command_for(tmp_path, source), capture_output=True, text=True, timeout=120)
    return ended.returncode, ended.stdout, json.loads((tmp_path / "summary.json").read_text())[0]


def test_a_failed_test_is_printed_with_its_output(tmp_path: Path) -> None:
    source = "def test_good():\n    print('noise')\n\ndef test_bad():\n    print('a clue')\n    assert 1 == 2\n"
    status, output, summary = run(tmp_path, source)
    assert status == 1
    assert (summary["passed"], len(summary["failed"])) == (1, 1)
    assert "test_bad" in summary["failed"][0]
    assert "a clue" in output
    assert "assert 1 == 2" in output
    assert "noise" not in output


def test_a_run_that_ends_by_itself_is_red(tmp_path: Path) -> None:
    status, output, summary = run(tmp_path, "import os\nos._exit(3)\n")
    assert status == 1
    assert "status 3" in summary["broken"]
    assert "status 3" in output


def test_an_interrupt_ends_the_tests_that_run(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    source = "import os, time\ndef test_long():\n"
    source += f"    open({str(pid)!r}, 'x').write(f'{{os.getpid()}}\\n')\n    time.sleep(600)\n"
    tool = subprocess.Popen(command_for(tmp_path, source), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: pid.exists() and pid.read_text().endswith("\n"), 90)
        tool.send_signal(signal.SIGINT)
        _, errors = tool.communicate(timeout=90)
    finally:
        tool.kill()
    assert tool.returncode == 130
    assert errors == "tests: interrupted\n"
    assert not Path("/proc", pid.read_text().strip()).exists()
