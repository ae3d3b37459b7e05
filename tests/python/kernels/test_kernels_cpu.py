# SPDX-License-Identifier: MIT
"""The GPU kernels' own sources, compiled for the CPU with threads for lanes, under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support import cannot

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "native" / "kernels"
# g++ takes three times as long for what is checked for addresses when it optimizes, and those programs mostly wait.
# Threads are to meet at the speed of optimized code.
SANITIZERS = {"address,undefined": "-O0", "thread": "-O1"}
EP = ["ep/dispatch.cpp", "ep/combine.cpp", "ep/count_local.cpp"]
EP_HOSTS = [*EP, *(f"ep/{name}.cpp" for name in ("dispatch_hosts", "combine_hosts", "combine_forward"))]
EP_HOSTS += ["testdata/nic_queue.cpp"]


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("test", "kernels"),
    [
        ("copy_blocks.cpp", ["io/copy_blocks.cpp"]),
        ("shmem.cpp", ["shmem/barrier.cpp", "shmem/library.cpp"]),
        ("words.cpp", []),
        ("proxy.cpp", ["proxy/put.cpp"]),
        ("standard.cpp", ["ep/standard.cpp"]),
        ("ep.cpp", EP),
        ("ep_hosts.cpp", EP_HOSTS),
        ("ep_forward.cpp", EP_HOSTS),
        ("nic.cpp", []),  # it includes the kernels, with delays where the order of steps matters
    ],
)
@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_on_threads(test: str, kernels: list[str], sanitizers: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        cannot("clang", "g++ is not installed")
    program = tmp_path / "program"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-g1", "-pthread", f"-I{ROOT / 'native' / 'include'}"]
    flags += [SANITIZERS[sanitizers], f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    sources = [str(KERNELS / "testdata" / test), *(str(KERNELS / kernel) for kernel in kernels)]
    compiled = run("g++", *flags, "-o", str(program), *sources)
    assert compiled.returncode == 0, compiled.stderr
    ended = run(str(program))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout == "all ran\n"
