# SPDX-License-Identifier: MIT
"""The GPU kernels' own sources, compiled for the CPU with threads for lanes, under sanitizers."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support import cannot

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "native" / "kernels"
# g++ takes three times as long for what is checked for addresses when it optimizes, and those programs mostly wait.
# Threads synchronise at the speed of optimized code.
SANITIZERS = {"address,undefined": "-O0", "thread": "-O1"}
EP = ["ep/dispatch.cpp", "ep/combine.cpp", "ep/count_local.cpp"]
EP_HOSTS = [*EP, *(f"ep/{name}.cpp" for name in ("dispatch_hosts", "combine_hosts", "combine_forward"))]
EP_HOSTS += ["testdata/nic_queue.cpp"]


def run(*command: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of compiled sources, which the processes of pytest-xdist share."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kernels_cpu"
    folder.mkdir(exist_ok=True)
    return folder


def compiled(source: Path, flags: list[str], folder: Path) -> Path:
    """Compile a source, or find it compiled with these flags: several programs have the same kernels."""
    made = folder / f"{'_'.join(source.relative_to(KERNELS).parts)}{''.join(flags[-3:])}.o"
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            half = made.with_suffix(".half")
            ended = run("g++", *flags, "-c", "-o", half, source)
            assert ended.returncode == 0, ended.stderr
            half.rename(made)
    return made


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
def test_on_threads(test: str, kernels: list[str], sanitizers: str, objects: Path, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        cannot("clang", "g++ is not installed")
    program = tmp_path / "program"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-g1", "-pthread", f"-I{ROOT / 'native' / 'include'}"]
    flags += [SANITIZERS[sanitizers], f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    parts = [compiled(KERNELS / source, flags, objects) for source in (f"testdata/{test}", *kernels)]
    linked = run("g++", *flags, "-o", program, *parts)
    assert linked.returncode == 0, linked.stderr
    ended = run(program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout == "all ran\n"
