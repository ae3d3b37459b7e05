# SPDX-License-Identifier: MIT
"""How this tree's Go packages are compiled: the environment and the build tags, as the Makefile has them."""

from __future__ import annotations

import os
from pathlib import Path

import headerflags
import pyheaders

ROOT = Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """The environment of go commands. Test programs run without a Python, so its symbols stay open."""
    return {
        **os.environ,
        "CGO_CFLAGS": f"-O2 {pyheaders.cgo_flags()}",
        "CGO_CXXFLAGS": f"-O2 {headerflags.cgo_flags()}",
        "CGO_LDFLAGS": "-O2 -Wl,--unresolved-symbols=ignore-all",
    }


def tags() -> list[str]:
    """The provider "ofi" is built and tested where libfabric's headers are."""
    return ["-tags", "ofi"] if Path("/usr/include/rdma/fabric.h").exists() else []
