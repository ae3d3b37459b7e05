# SPDX-License-Identifier: MIT
"""The first program of the README does what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def test_first_program() -> None:
    pytest.importorskip("numpy")
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    promised = re.search(r"It prints `(.*?)`", README.read_text())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert promised is not None
    assert done.stdout.strip() == promised[1]


def test_every_command_is_there() -> None:
    for command in re.findall(r"^\| `mori (\w+)", README.read_text(), re.MULTILINE):
        done = subprocess.run(
            [sys.executable, "-m", "mori", command, "--help"], capture_output=True, timeout=30, check=False
        )
        assert done.returncode == 0, command
