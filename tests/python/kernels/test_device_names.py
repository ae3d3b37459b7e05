# SPDX-License-Identifier: MIT
"""Every name of the device's symmetric memory can be called: in kernels for both vendors, and on the CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import device_names
import pytest

from support import cannot

ROOT = Path(__file__).resolve().parents[3]
FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'native' / 'include'}"]
CUDA = ["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib"]
HIP = ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-fuse-cuid=none"]
COMPILERS = {
    "sm_80": ["clang++-19", *FLAGS, *CUDA, "--cuda-gpu-arch=sm_80", "--cuda-feature=+ptx74"],
    "sm_90": ["clang++-19", *FLAGS, *CUDA, "--cuda-gpu-arch=sm_90", "--cuda-feature=+ptx80"],
    "gfx90a": ["clang++-19", *FLAGS, *HIP, "--offload-arch=gfx90a"],
    "gfx942": ["clang++-19", *FLAGS, *HIP, "--offload-arch=gfx942"],
    "CPU": ["g++", *FLAGS],
}


def compiled(target: str, content: str, folder: Path, *more: str) -> subprocess.CompletedProcess:
    compiler = COMPILERS[target]
    if shutil.which(compiler[0]) is None:
        cannot("clang", f"{compiler[0]} is not installed")
    source = folder / "names.cpp"
    source.write_text(content)
    return subprocess.run([*compiler, *more, str(source)], capture_output=True, text=True, timeout=280)


def test_the_list_is_that_of_the_grammar() -> None:
    names = {name for name, _ in device_names.moves() + device_names.words() + device_names.others()}
    integers, scopes = 9, 3
    # Mem, Type and each number: put, get, blocking get, put with signal; in each scope.
    assert len({name for name, _ in device_names.moves()}) == (2 + integers + 2) * 4 * scopes
    assert {"ShmemPutMemNbiThread", "ShmemGetDoubleBlock", "ShmemPutTypeNbiSignalWarp"} < names
    assert {"ShmemAtomicUlongFetchWarp", "ShmemPutInt16ImmNbiWarp"} < names
    assert {"ShmemScharWaitUntilGreaterThan", "ShmemUint8AtomicFetchAddThread"} < names


@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", COMPILERS)
def test_every_name_can_be_called(target: str, tmp_path: Path) -> None:
    ended = compiled(target, device_names.source(), tmp_path, "-fsyntax-only")
    assert ended.returncode == 0, ended.stderr[:4000]


def test_a_name_that_is_not_there_is_told(tmp_path: Path) -> None:
    wrong = device_names.source([("ShmemPutMemNbiGrid", "@char, @char, count, pe")])
    ended = compiled("CPU", wrong, tmp_path, "-fsyntax-only")
    assert ended.returncode != 0
    assert "ShmemPutMemNbiGrid" in ended.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
def test_every_word_becomes_code(target: str, tmp_path: Path) -> None:
    # The types' widths pick instructions; moves are copies of bytes, whatever the type.
    calls = device_names.words() + device_names.others()
    ended = compiled(target, device_names.source(calls), tmp_path, "-O1", "-S", "-o", str(tmp_path / "names.s"))
    assert ended.returncode == 0, ended.stderr[:4000]
    code = (tmp_path / "names.s").read_text()
    kernel = ".entry call{}(" if target.startswith("sm_") else ".globl\tcall{}\n"
    for i in range(len(device_names.statements(calls))):
        assert kernel.format(i) in code


def test_nvcc_has_every_built_in_function(tmp_path: Path) -> None:
    """Clang has more of them in code for GPUs than nvcc, which is not here; what it is known to take is listed."""
    include = ROOT / "native" / "include"
    headers = "".join(f'#include "{path.relative_to(include)}"\n' for path in sorted(include.rglob("*.hpp")))
    ended = compiled("CPU", headers, tmp_path, "-E", "-D__CUDACC__", "-D__CUDA_ARCH__=900")
    assert ended.returncode == 0, ended.stderr[:4000]
    ours, found = False, set()
    for line in ended.stdout.splitlines():
        if mark := re.match(r'# \d+ "(.*?)"', line):
            ours = Path(mark[1]).is_relative_to(include)
        elif ours:
            found |= set(re.findall(r"__builtin_\w+", line))
    assert found == {"__builtin_memcpy"}
