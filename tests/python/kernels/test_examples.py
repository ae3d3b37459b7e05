# SPDX-License-Identifier: MIT
"""The example of a kernel of one's own: it compiles for both vendors, and runs on two PEs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mori
from support import cannot

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "gpu"
KERNEL = FOLDER / "put_signal.cu"


def commands() -> list[list[str]]:
    """The commands in the head of the kernel's source."""
    head = KERNEL.read_text().split("#include")[0]
    text = re.sub(r"^// ?", "", head, flags=re.MULTILINE)
    found = re.findall(r"^    (?:nvcc|clang\S+) .*(?:\n        .*)*", text, re.MULTILINE)
    return [command.split() for command in found]


def compiled(product: str, folder: Path) -> Path:
    """Make a product by the command of clang that the head names."""
    if shutil.which("clang++-19") is None:
        cannot("clang", "clang-19 is not installed")
    [command] = [words for words in commands() if words[0].startswith("clang") and product in words]
    command[command.index(product)] = str(folder / product)
    command[command.index("-I$include")] = f"-I{mori.get_include()}"
    made = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=100)
    assert made.returncode == 0, made.stderr
    return folder / product


def test_the_head_has_a_command_for_each_compiler() -> None:
    assert [words[0] for words in commands()] == ["nvcc", "clang++-19", "clang++-19"]


@pytest.mark.timeout(120)
def test_it_compiles_for_amd(tmp_path: Path) -> None:
    code = compiled("put_signal.hsaco", tmp_path).read_bytes()
    assert code[:4] == b"\x7fELF"
    assert b"pass_on.kd" in code
    assert b"mori_shmem_state" in code


@pytest.mark.timeout(120)
def test_it_compiles_for_nvidia(tmp_path: Path) -> None:
    code = compiled("put_signal.ptx", tmp_path).read_text()
    assert ".entry pass_on(" in code
    assert "mori_shmem_state[64];" in code
    assert "st.global.v4.u32" in code


# How PEs of one host come to each other's GPUs: by loads and stores, or by what would carry them to other hosts.
WAYS = {"mapped": {}, "network": {"MORI_DISABLE_P2P": "1"}, "other hosts": {"MORI_NODE_ID": "host {rank}"}}


def start(
    script: Path, rank: int, size: int, meet: Path, *arguments: str | Path, way: str = "mapped"
) -> subprocess.Popen:
    told = {name: value.format(rank=rank) for name, value in WAYS[way].items()}
    place = {"MORI_RANK": str(rank), "MORI_WORLD_SIZE": str(size), "MORI_BOOTSTRAP": str(meet), "LOCAL_RANK": str(rank)}
    return subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        env={**os.environ, "MORI_SHMEM_HEAP_SIZE": "64M", **place, **told},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("pes", "way"), [(1, "mapped"), (3, "mapped"), (2, "network"), (2, "other hosts")])
def test_it_runs(gpu: None, tmp_path: Path, pes: int, way: str) -> None:
    ptx = compiled("put_signal.ptx", tmp_path)
    running = [
        start(FOLDER / "put_signal.py", rank, pes, tmp_path / "meet", ptx, "--count", "3001", "--turns", "3", way=way)
        for rank in range(pes)
    ]
    try:
        said = [process.communicate(timeout=100)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * pes, "\n".join(said)
    assert re.search(rf"^{pes} PEs on .*: 3 turns of 3001 floats are right$", said[0], re.MULTILINE), said[0]


def test_it_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": ""}
    command = [sys.executable, FOLDER / "put_signal.py", tmp_path / "none.ptx"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 1
    assert ended.stderr.startswith("no GPU: "), ended.stderr
