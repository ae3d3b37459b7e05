# SPDX-License-Identifier: MIT
"""`mori demo interchange`, on threads of the CPU and on GPUs, by the emulated NIC and by a proxy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mori._demo.interchange import verdict

ROOT = Path(__file__).resolve().parents[3]


def interchange(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mori", "demo", "interchange", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def succeeds(done: subprocess.CompletedProcess[str], nbytes: int = 1024, value: int = 42) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    steps = [line for line in lines if line.startswith("Step ")]
    assert [step.split(":")[0] for step in steps] == [f"Step {n}" for n in range(1, 9)]
    numbers = re.findall(r"(sender|receiver): QP number (0x[0-9a-f]+)", done.stdout)
    assert [rank for rank, _ in numbers] == ["sender", "receiver"]
    assert f"Success! All {nbytes} bytes verified with value {value}" in lines
    assert lines[-1] == "=== Example completed successfully! ==="


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("device", ["emu0", "emu0:bnxt", "emu0:ionic2", "proxy", "proxy:tcp"])
def test_every_byte_arrives(device: str, processes: str) -> None:
    succeeds(interchange("--device", device, "--gpu", "cpu", "--processes", processes))


def test_many_rounds_of_odd_sizes() -> None:
    done = interchange("--gpu", "cpu", "--bytes", "70001", "--value", "255", "--rounds", "7")
    succeeds(done, 70001, 255)
    assert re.search(r"sender: mori_nic_interchange, 7 rounds, [0-9.]+ µs each", done.stdout)


@pytest.mark.parametrize("device", ["emu0", "emu0:bnxt", "emu0:ionic1", "proxy"])
def test_on_a_gpu(device: str, gpu: None) -> None:
    done = interchange("--device", device, "--rounds", "3")
    succeeds(done)
    assert re.search(r"sender on (CUDA|HIP) device 0 .* to receiver on (CUDA|HIP) device 0", done.stdout)


def test_two_gpus_in_two_processes(gpu: None) -> None:
    from mori import device

    first = device.devices()[0].api.lower()
    succeeds(interchange("--device", "proxy", "--gpu", f"{first}:0,{first}:0", "--processes", "2"))


def test_the_example_is_the_program() -> None:
    command = [sys.executable, str(ROOT / "examples" / "gpu_interchange.py"), "--gpu", "cpu"]
    succeeds(subprocess.run(command, capture_output=True, text=True, timeout=100))


def test_wrong_bytes_are_told() -> None:
    assert "WRONG BYTES: 3 of 1024 are not 42" in verdict(1024, 42, 3)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--bytes", "0"], 2, "--bytes"),
        (["--rounds", "0"], 2, "--rounds"),
        (["--value", "256"], 2, "--value"),
        (["--limit", "0"], 2, "--limit"),
        (["--gpu", "cpu,cpu,cpu"], 2, "--gpu"),
        (["--gpu", "abacus"], 1, "want cpu, cuda:N or hip:N"),
        (["--gpu", "cpu", "--device", "proxy:carrier"], 1, "carrier"),
        (["--gpu", "cpu", "--device", "mlx5_99"], 1, "mlx5_99"),
    ],
)
def test_what_is_not_there_is_refused(arguments: list[str], status: int, says: str) -> None:
    done = interchange(*arguments)
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
