# SPDX-License-Identifier: MIT
"""`mori bench io` as a user runs it, with little work in each sample."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench_command import AGREED, bench, needs_matplotlib

FIGURES = "shm-1024x4KiB,shm-8B-latency,tcp-1024x4KiB-read,tcp-8B-latency"


def test_json_is_one_object_a_line_and_nothing_else() -> None:
    done = bench("io", "--json", "--quick", "--repeats", "1", "--cases", FIGURES)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["case"] for one in told] == FIGURES.split(",")
    for one in told:
        assert one.keys() >= AGREED
        assert one["value"] > 0
        assert one["raw"] > 0
        assert one["ratio"] == pytest.approx(one["value"] / one["raw"], rel=0.01)
    assert [one["path"] for one in told] == ["shm", "shm", "tcp", "tcp"]


def test_the_cases_without_a_path_run_on_the_one_asked_for() -> None:
    names = "submit-1000-lists,status-poll,idle-cpu,million-small-leak"
    done = bench("io", "--json", "--quick", "--repeats", "1", "--path", "tcp", "--cases", names)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["case"] for one in told] == names.split(",")
    assert {one["path"] for one in told} == {"tcp"}


def test_notifications_can_be_left_out() -> None:
    done = bench("io", "--quick", "--repeats", "1", "--no-notifications", "--cases", "tcp-8B-latency-read")
    assert done.returncode == 0, done.stderr
    assert "without notifications" in done.stdout


def test_people_get_the_machine_and_a_table() -> None:
    done = bench("io", "--quick", "--repeats", "1", "--cases", "shm-8B-latency,status-poll")
    assert done.returncode == 0, done.stderr
    assert f"Python {sys.version.split()[0]}" in done.stdout
    assert "QUICK" in done.stdout
    assert "shm-8B-latency" in done.stdout
    assert done.stderr == "", "no progress bar without a terminal"


@needs_matplotlib
def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "bench.png"
    done = bench("io", "--quick", "--repeats", "1", "--cases", "shm-1024x4KiB,shm-8B-latency", "--plot", str(file))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"\x89PNG\r\n")
    assert file.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "the following arguments are required: what"),
        (["io", "--cases", "shm-1x1"], "unknown case 'shm-1x1'; known: shm-128x1MiB"),
        (["io", "--cases", "tcp-8B-latency", "--path", "shm"], "none of tcp-8B-latency runs on path shm"),
        (["io", "--repeats", "0"], "must be at least 1"),
        (["io", "--path", "pigeon"], "invalid choice: 'pigeon'"),
        (["swim"], "invalid choice: 'swim'"),
        (["io", "--plot", "/nowhere/x.png"], "there is no folder /nowhere"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], text: str) -> None:
    if "--plot" in arguments and importlib.util.find_spec("matplotlib") is None:
        text = "pip install matplotlib"
    done = bench(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stdout == ""


def test_a_missing_matplotlib_is_named_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = bench("io", "--plot", "x.png", env={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "pip install matplotlib" in done.stderr


@pytest.mark.parametrize(
    ("what", "case", "others"), [("io", "idle-cpu", 1), ("shmem", "barrier-2", 2), ("ep", "combine-128", 4)]
)
def test_ctrl_c_ends_all_processes(what: str, case: str, others: int) -> None:
    command = [sys.executable, "-m", "mori", "bench", what, "--json", "--cases", case, "--repeats", "500"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        children = _children_of(process.pid, others)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 130
        assert all(_is_gone(pid) for pid in children)
    finally:
        process.kill()
        process.communicate()


def _children_of(pid: int, at_least: int) -> list[int]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        if len(found) >= at_least:
            return found
        time.sleep(0.05)
    raise AssertionError(f"process {pid} started no other")


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
