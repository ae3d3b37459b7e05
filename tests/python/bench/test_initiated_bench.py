# SPDX-License-Identifier: MIT
"""`mori bench shmem --initiated`: puts that kernels post, on threads of the CPU and on GPUs, with little work."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from bench_command import AGREED, bench, needs_matplotlib

import gpus
from mori._bench.shmem import initiated_cases

QUICK = ("shmem", "--initiated", "--quick", "--repeats", "1")


def check(done: subprocess.CompletedProcess[str], gpus_used: int) -> None:
    assert done.returncode == 0, done.stderr
    results = {one["case"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert list(results) == [case.name for case in initiated_cases()]
    for case in initiated_cases():
        one = results[case.name]
        assert one.keys() >= {*AGREED, "gpus", "device", "emulated", "quick"}
        assert (one["path"], one["bytes"], one["gpus"], one["unit"]) == (str(case.path), 8, gpus_used, case.unit)
        assert one["value"] > 0
        assert (one["raw"] is not None) is str(case.path).startswith("proxy")
        assert (one["ratio"] is not None) is str(case.path).startswith("proxy")
    assert results["emu0-8B-right"]["value"] == results["emu0-8B-right"]["puts"]


@pytest.mark.timeout(200)
def test_threads_of_the_cpu_put() -> None:
    check(bench(*QUICK, "--gpus", "cpu", "--json"), 0)


@pytest.mark.timeout(200)
def test_gpus_put(gpu: None) -> None:
    check(bench(*QUICK, "--gpus", "0", "--json", env=gpus.child_env()), 1)


@needs_matplotlib
@pytest.mark.timeout(200)
def test_a_table_and_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "puts.png"
    cases = "stores-8B-latency,proxy-shm-8B-rate,emu0-8B-right"
    done = bench(*QUICK, "--gpus", "cpu", "--cases", cases, "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    assert "the figures are not a GPU's" in done.stdout
    assert all(name in done.stdout for name in cases.split(","))
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("--gpus", "cpu", "--cases", "carrier-8B-rate"), 2, "carrier-8B-rate"),
        ((), 1, "--gpus cpu"),
    ],
)
def test_what_is_not_there_is_refused(arguments: tuple[str, ...], status: int, says: str) -> None:
    none = {"LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    done = bench(*QUICK, *arguments, env=none)
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
