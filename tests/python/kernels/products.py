# SPDX-License-Identifier: MIT
"""Compiled kernels, for the tests that read them."""

from __future__ import annotations

from pathlib import Path

from mori import _kernels


def ptx(kernel: str, architecture: str) -> Path:
    """Return the file that an NVIDIA GPU of an architecture loads: sm_80's where sm_90 has none of its own."""
    file = _kernels.DIRECTORY / f"{kernel}.{architecture}.ptx"
    return file if file.exists() else _kernels.DIRECTORY / f"{kernel}.sm_80.ptx"
