# SPDX-License-Identifier: MIT
"""`mori demo` as a user runs it, on a small cache."""

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

SMALL = ["--layers", "4", "--kv-heads", "2", "--head-dim", "32", "--tokens", "500"]
BLOCKS = 4 * 2 * 32


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mori", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("mode", ["write", "read"])
@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_a_cache_moves_and_every_byte_is_right(path: str, mode: str) -> None:
    done = demo(*SMALL, "--json", "--path", path, "--mode", mode)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["path"].partition("/")[0] == path
    assert told["mode"] == mode
    assert told["blocks"] == BLOCKS
    assert told["bytes"] == BLOCKS * told["block_bytes"]
    assert (told["wrong_blocks"], told["touched_spare_blocks"]) == (0, 0)
    assert len(told["layers_ms"]) == 4
    assert told["gbps"] > 0
    assert told["raw"] > 0
    assert told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]


@pytest.mark.parametrize(
    "shape",
    [
        ["--layers", "1", "--kv-heads", "1", "--head-dim", "3", "--dtype", "fp8", "--block-size", "1", "--tokens", "1"],
        ["--layers", "3", "--kv-heads", "3", "--head-dim", "5", "--dtype", "fp32", "--tokens", "37", "--inflight", "8"],
    ],
    ids=["one block of three bytes", "odd sizes, all layers at once"],
)
def test_odd_shapes_move_too(shape: list[str]) -> None:
    done = demo(*shape, "--json", "--seed", "5")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["wrong_blocks"] == 0


def test_people_get_a_table() -> None:
    done = demo(*SMALL)
    assert done.returncode == 0, done.stderr
    for part in ("machine", "path", "GB/s", "of the raw limit", "layer latency", f"Every byte of {BLOCKS} blocks"):
        assert part in done.stdout
    assert done.stderr == "", "no progress bar without a terminal"


def test_one_wrong_byte_fails_the_run() -> None:
    done = demo(*SMALL, "--spoil-a-byte")
    assert done.returncode == 1
    assert f"WRONG BYTES: 1 of {BLOCKS} blocks differ" in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "demo.png"
    done = demo(*SMALL, "--plot", str(file))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"\x89PNG\r\n")
    assert file.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--layers", "0"], 2, "layers must be at least 1, got 0"),
        (["--tokens", "0"], 2, "tokens must be at least 1, got 0"),
        (["--inflight", "0"], 2, "--inflight must be at least 1, got 0"),
        (["--dtype", "int3"], 2, "invalid choice: 'int3'"),
        (["--path", "pigeon"], 2, "invalid choice: 'pigeon'"),
        (["--tokens", "900000000"], 1, "ask for fewer --tokens"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], status: int, text: str) -> None:
    done = demo(*arguments)
    assert done.returncode == status
    assert text in done.stderr
    assert done.stdout == ""


def test_ctrl_c_ends_all_processes() -> None:
    command = [sys.executable, "-m", "mori", "demo", "--json", "--path", "tcp"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        deadline = time.monotonic() + 20
        while len(started := children.read_text().split()) < 2:
            assert time.monotonic() < deadline, "the two processes were not started"
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 130
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in started):
            assert time.monotonic() < deadline, f"of {started} some still run"
            time.sleep(0.05)
    finally:
        process.kill()
        process.communicate()
