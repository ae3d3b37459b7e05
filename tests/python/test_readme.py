# SPDX-License-Identifier: MIT
"""The programs of the README do what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import mpirun

README = Path(__file__).resolve().parents[2] / "README.md"


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_second_program() -> None:
    pytest.importorskip("numpy")
    (program,) = programs()[1:]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "PE 0 of 1 has the row of PE 0"
    four = mpirun(4, sys.executable, "-c", program)
    assert four == [f"PE {i} of 4 has the row of PE {(i - 1) % 4}\n" for i in range(4)]


def test_first_program() -> None:
    pytest.importorskip("numpy")
    program = programs()[0]
    promised = re.search(r"It prints `(.*?)`", README.read_text())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert promised is not None
    assert done.stdout.strip() == promised[1]


def test_every_command_is_there() -> None:
    for command in re.findall(r"^\| `mori (\w+)", README.read_text(), re.MULTILINE):
        done = subprocess.run(
            [sys.executable, "-m", "mori", command, "--help"], capture_output=True, timeout=90, check=False
        )
        assert done.returncode == 0, command
