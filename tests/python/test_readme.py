# SPDX-License-Identifier: MIT
"""The programs of the README run and print what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import mpirun

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
PROGRAMS = dict(re.findall(r"^## (mori\.\w+):.*?```python\n(.*?)```", README, re.DOTALL | re.MULTILINE))


def alone(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_each_module_has_a_program() -> None:
    assert list(PROGRAMS) == ["mori.io", "mori.shmem", "mori.ops"]


def test_io_program() -> None:
    pytest.importorskip("numpy")
    promised = re.search(r"It prints `(.*?)`", README)
    assert promised is not None
    assert alone(PROGRAMS["mori.io"]) == promised[1]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("mori.shmem", "PE {me} of {ranks} has the row of PE {left}"),
        ("mori.ops", "rank {me} of {ranks}: 10 tokens went to their experts and back"),
    ],
)
def test_rank_programs(module: str, line: str) -> None:
    pytest.importorskip("numpy")
    assert alone(PROGRAMS[module]) == line.format(me=0, ranks=1, left=0)
    assert mpirun(4, sys.executable, "-c", PROGRAMS[module]) == [
        f"{line.format(me=me, ranks=4, left=(me - 1) % 4)}\n" for me in range(4)
    ]


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150
    results = README[README.index("## Results") : README.index("[Benchmarks]")]
    assert 3 <= results.count("\n|") <= 2 + 8
