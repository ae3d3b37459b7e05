# SPDX-License-Identifier: MIT
"""What runs the checks on GPU machines (tests/gpu) bounds its steps and reports what did not run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
GPU = ROOT / "tests" / "gpu"


@pytest.fixture(scope="module")
def steps() -> ModuleType:
    spec = importlib.util.spec_from_file_location("steps", GPU / "steps.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["steps"] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def shell(steps: ModuleType, name: str, script: str, **more: object) -> object:
    return steps.Step(name, more.pop("limit", 20), ["sh", "-c", script], ROOT, **more)


def test_a_step_after_one_that_failed_does_not_run(steps: ModuleType, tmp_path: Path) -> None:
    runner = steps.Runner(60)
    there = tmp_path / "ran"
    runner.run([[
        shell(steps, "build", "echo no such file; exit 3"),
        shell(steps, "check", f"touch {there}", needs=("build",)),
        shell(steps, "other", "echo $WORD", env={"WORD": "seen"}),
    ]])
    assert [done.result for done in runner.done] == ["exit status 3", "not run: build did not end well", "ok"]
    assert [done.output for done in runner.done] == ["no such file\n", "", "seen\n"]
    assert not there.exists()


def test_a_step_that_hangs_is_ended_with_its_children(steps: ModuleType, tmp_path: Path) -> None:
    runner = steps.Runner(60)
    pid = tmp_path / "pid"
    runner.run([[shell(steps, "hangs", f"echo begun; sleep 600 & echo $! >{pid}; wait", limit=0.5)]])
    [done] = runner.done
    assert done.result == "stopped after 0 s"
    assert done.output == "begun\n"
    child = Path("/proc") / pid.read_text().strip()
    deadline = time.monotonic() + 10
    while child.exists() and "State:\tZ" not in (child / "status").read_text():
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.01)


def test_what_comes_after_the_budget_does_not_run(steps: ModuleType) -> None:
    runner = steps.Runner(1.5)
    runner.run([[shell(steps, "long", "sleep 600"), shell(steps, "late", "true")]])
    assert [done.result for done in runner.done] == ["stopped after 1 s", "not run: the time is up"]


def test_a_program_that_is_not_there_is_told(steps: ModuleType) -> None:
    runner = steps.Runner(60)
    runner.run([[steps.Step("nowhere", 5, ["/nonexistent/program"], ROOT)]])
    assert runner.done[0].result.startswith("cannot start: ")


def test_the_tail_leaves_out_what_is_well(steps: ModuleType) -> None:
    output = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/b\n--- FAIL: TestB\n    b.go: why\nFAIL\n"
    done = steps.Done(steps.Step("go", 1, [], ROOT), "exit status 1", 0, output)
    assert done.tail() == "--- FAIL: TestB\n    b.go: why\nFAIL"


def test_run_refuses_a_group_that_is_not() -> None:
    ended = subprocess.run([GPU / "run", "--only", "cpp,no-such"], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2
    assert "no such group: no-such" in ended.stderr


@pytest.mark.timeout(120)
def test_run_leaves_a_summary_and_logs(tmp_path: Path) -> None:
    # Without time there is nothing that runs; what is left behind is the same.
    ended = subprocess.run([GPU / "run", tmp_path, "--budget", "0"], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 1, ended.stderr
    summary = (tmp_path / "summary.txt").read_text()
    assert "not run: the time is up" in summary
    assert ended.stdout.endswith(summary)
    with tarfile.open(tmp_path / "logs.tar.gz") as archive:
        names = set(archive.getnames())
    assert {"machine.txt", "build-shmem.txt", "memcheck-copy.txt", "bench-io.txt", "pytest.txt"} <= names
    assert len(list(tmp_path.iterdir())) == 3
