# SPDX-License-Identifier: MIT
"""The C++ programs of native/examples, whose kernels drive NICs and proxies: on threads of the CPU, and on GPUs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import cannot

ROOT = Path(__file__).resolve().parents[3]
BUILT = ROOT / "build" / "examples"
PROGRAMS = ["atomics", "send_recv", "two_processes", "write"]
GPU_KINDS = {"cuda": "sm_90", "hip": "gfx942"}


def build(*arguments: str) -> None:
    """Build the programs, unless they were brought along to a machine without Go."""
    if shutil.which("go") is None and (BUILT / "libmori_capi.so").exists():
        return
    for tool in ("go", "g++"):
        if shutil.which(tool) is None:
            cannot("clang", f"{tool} is not installed")
    command = [sys.executable, str(ROOT / "tools" / "examples.py"), *arguments]
    made = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert made.returncode == 0, made.stderr


@pytest.fixture(scope="module")
def built() -> None:
    build("--gpus", "none")


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUILT / name, *arguments], capture_output=True, text=True, timeout=100)


def succeeds(done: subprocess.CompletedProcess[str], nbytes: int = 1024, value: int = 42) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    steps = [line for line in lines if line.startswith("Step ")]
    assert [step.split(":")[0] for step in steps] == [f"Step {n}" for n in range(1, 9)]
    assert re.findall(r"(sender|receiver): QP number 0x[0-9a-f]+", done.stdout) == ["sender", "receiver"]
    assert lines[-3:] == [
        f"Success! All {nbytes} bytes verified with value {value}", "", "=== Example completed successfully! ==="
    ]


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("device", ["emu0", "proxy", "proxy:tcp"])
def test_the_twin_interchanges(device: str, processes: str, built: None) -> None:
    arguments = ["--bytes", "3001", "--value", "255", "--rounds", "7"] if processes == "1" else []
    done = run("gpu_interchange", "--device", device, "--gpu", "cpu", "--processes", processes, *arguments)
    succeeds(done, *((3001, 255) if arguments else ()))
    assert re.search(r"sender: example_(nic|proxy)_send, \d+ rounds", done.stdout)


@pytest.mark.timeout(1000)
def test_what_is_there_is_not_built_again(built: None) -> None:
    if shutil.which("go") is None:
        cannot("clang", "go is not installed")
    kept = [".lock", "libmori_capi.so"]  # go touches what it does not link again
    there = {path: path.stat().st_mtime_ns for path in BUILT.iterdir() if path.name not in kept}
    build("--gpus", "none")
    assert {path: path.stat().st_mtime_ns for path in there} == there


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_does_what_it_says(name: str, built: None) -> None:
    done = run(name, "--device", "emu0", "--gpu", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    said = {
        "atomics": "4 threads on CPU threads: 32 adds saw 32 values, the sum is 32, and 1 took the lock",
        "send_recv": "5 messages from CPU threads to CPU threads: 0 things are wrong",
        "two_processes": "to another: 0 are wrong",
        "write": "8192 bytes written, 40 inline, by CPU threads to CPU threads: 0 are wrong, and the flag is 2",
    }
    assert said[name] in done.stdout


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("name", "arguments", "status", "says"),
    [
        ("gpu_interchange", ["--value", "256"], 2, "--value"),
        ("gpu_interchange", ["--bytes", "0"], 2, "--bytes"),
        ("gpu_interchange", ["--depth", "1"], 2, "usage"),
        ("gpu_interchange", ["--device", "proxy:carrier"], 1, "carrier"),
        ("gpu_interchange", ["--device", "mlx5_99", "--processes", "2"], 1, "mlx5_99"),
        ("gpu_interchange", ["--gpu", "abacus"], 1, "want cpu, cuda:N or hip:N"),
        ("write", ["--device", "proxy"], 1, "drives a NIC by itself"),
    ],
)
def test_what_is_not_there_is_refused(name: str, arguments: list[str], status: int, says: str, built: None) -> None:
    done = run(name, *arguments)
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr


@pytest.mark.timeout(1000)
def test_they_run_on_gpus(gpu: None) -> None:
    from mori import device

    first = device.devices()[0]
    vendor = first.api.lower()
    if shutil.which("clang++-19") is None:
        cannot("clang", "clang-19 is not installed")
    build("--gpus", GPU_KINDS[vendor])
    environment = {**os.environ, "MORI_KERNEL_DIR": str(BUILT)}
    for name, *arguments in [[name] for name in PROGRAMS] + [
        ["gpu_interchange", "--device", nic] for nic in ("emu0", "proxy")
    ]:
        command = [BUILT / name, "--gpu", f"{vendor}:{first.ordinal}", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        assert name == "two_processes" or re.search(r"(CUDA|HIP) device 0", done.stdout), done.stdout
