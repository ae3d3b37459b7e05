# SPDX-License-Identifier: MIT
"""`mori demo shmem` and `mori demo moe`, started by themselves, by mpirun and by torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import need_mpi, need_torch

TINY = {
    "shmem": ["shmem", "--bytes", "5001", "--rounds", "2"],
    "moe": ["moe", "64", "17", "3", "2", "--rounds", "2"],
}


def alone(ranks: int) -> list[str]:
    return [sys.executable, "-m", "mori", "demo"]


def mpirun(ranks: int) -> list[str]:
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [need_mpi(), *root, "--oversubscribe", "-np", str(ranks), sys.executable, "-m", "mori", "demo"]


def torchrun(ranks: int) -> list[str]:
    need_torch()
    # Of its own port: another test may have the usual one.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*launcher, "-m", "mori", "demo"]


def run(launch: Callable[[int], list[str]], ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*launch(ranks), *arguments, "--pes", str(ranks)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("launch", [alone, mpirun, torchrun], ids=lambda f: f.__name__)
def test_every_byte_of_a_ring_and_an_alltoall_is_right(launch: Callable[[int], list[str]]) -> None:
    told = report(run(launch, 3, *TINY["shmem"], "--json"))
    assert [pe["pe"] for pe in told["pes"]] == [0, 1, 2]
    for pe in told["pes"]:
        assert (pe["ring"]["sent"], pe["ring"]["wrong"]) == (2 * 5001, 0)
        assert (pe["alltoall"]["sent"], pe["alltoall"]["wrong"]) == (2 * 3 * 5001, 0)


@pytest.mark.parametrize("launch", [alone, mpirun, torchrun], ids=lambda f: f.__name__)
def test_a_layer_over_ranks_is_that_of_one_process(launch: Callable[[int], list[str]]) -> None:
    told = report(run(launch, 4, *TINY["moe"], "--json"))
    assert told["right"]
    assert len(told["ranks"]) == 4
    # Each token goes to one or two ranks.
    assert 4 * 17 <= sum(rank["received"] for rank in told["ranks"]) <= 2 * 4 * 17
    assert all(rank["error"] < 1e-4 for rank in told["ranks"])


@pytest.mark.parametrize("name", ["shmem", "moe"])
def test_people_get_a_table(name: str) -> None:
    done = run(alone, 2, *TINY[name])
    assert done.returncode == 0, done.stderr
    for part in ("2 ", "GB/s", {"shmem": "bytes are right", "moe": "that of a single process"}[name]):
        assert part in done.stdout


@pytest.mark.parametrize(
    ("name", "spoil", "text"),
    [("shmem", "--spoil-a-byte", "WRONG BYTES: 1 of"), ("moe", "--spoil-a-row", "WRONG: outputs differ")],
)
def test_a_wrong_byte_is_found(name: str, spoil: str, text: str) -> None:
    done = run(alone, 2, *TINY[name], spoil)
    assert done.returncode == 1
    assert text in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["shmem", "--pes", "0"], "--pes must be at least 1"),
        (["shmem", "--bytes", "-1"], "--bytes must be at least 1"),
        (["moe", "0"], "hidden must be at least 1"),
        (["moe", "8", "8", "2", "9", "--pes", "4"], "cannot choose 9 of 8 experts"),
        (["moe", "8", "8", "2", "2", "--rounds", "0"], "--rounds must be at least 1"),
    ],
)
def test_impossible_arguments_are_refused(arguments: list[str], text: str) -> None:
    done = subprocess.run([*alone(0), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert text in done.stderr


@pytest.mark.parametrize("name", ["shmem", "moe"])
def test_a_rank_that_is_killed_is_named_by_the_others(name: str, tmp_path: Path) -> None:
    long = {"shmem": ["shmem", "--rounds", "1000000"], "moe": ["moe", "--rounds", "1000000"]}[name]
    told = [tmp_path / f"rank{rank}" for rank in range(3)]
    meeting = tmp_path / "ranks"
    processes: list[subprocess.Popen[bytes]] = []

    def start(rank: int) -> None:
        environment = {**os.environ, "MORI_RANK": str(rank), "MORI_WORLD_SIZE": "3", "MORI_BOOTSTRAP": str(meeting)}
        with open(told[rank], "w") as errors:
            processes.append(subprocess.Popen([*alone(3), *long, "--json"], env=environment, stderr=errors))

    def wait_until(there: bool) -> None:
        limit = time.monotonic() + 30
        while meeting.exists() != there:
            assert time.monotonic() < limit
            time.sleep(0.01)

    try:
        # Only ranks that have met can name one. Rank 0 makes the file, and takes it away when all have met:
        # it cannot be missed while the others have not been started.
        start(0)
        wait_until(there=True)
        start(1)
        start(2)
        wait_until(there=False)
        time.sleep(0.5)
        processes[1].send_signal(signal.SIGKILL)
        for rank in (0, 2):
            assert processes[rank].wait(20) == 1
            text, unit = told[rank].read_text(), {"shmem": "PE", "moe": "rank"}[name]
            assert f"mori demo {name}: {unit} {rank}: " in text
            assert "rank 1" in text or "PE 1" in text
    finally:
        for process in processes:
            process.kill()
            process.wait()
