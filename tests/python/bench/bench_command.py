# SPDX-License-Identifier: MIT
"""How these tests run `mori bench`."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

AGREED = {"case", "path", "bytes", "value", "unit", "raw", "ratio"}
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def bench(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mori", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})})
