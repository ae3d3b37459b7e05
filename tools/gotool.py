#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the go command as this tree needs it: python tools/gotool.py test ./io"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import headerflags
import pyheaders

ROOT = Path(__file__).resolve().parent.parent


def environment(race: bool = False) -> dict[str, str]:
    """
    Return the environment of go commands, for those with -race if ``race`` is true: there is no PIE with it.

    Go reuses compiled C only under equal flags, so the extension, the tests and the linters share these. Packages with
    C in them include Python.h; test programs run without a Python, so its symbols stay open.
    """
    mode = "" if race else "-buildmode=pie "
    return {
        **os.environ,
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-O2 {pyheaders.cgo_flags()}",
        "CGO_CXXFLAGS": f"-O2 {headerflags.cgo_flags()}",
        "CGO_LDFLAGS": "-O2 -Wl,--unresolved-symbols=ignore-all",
        "GOFLAGS": f"-trimpath {mode}{os.environ.get('GOFLAGS', '')}".strip(),
    }


def tags() -> list[str]:
    """The provider "ofi" is built and tested where libfabric's headers are."""
    return ["-tags", "ofi"] if Path("/usr/include/rdma/fabric.h").exists() else []


if __name__ == "__main__":
    try:
        os.execvpe("go", ["go", *sys.argv[1:]], environment("-race" in sys.argv))
    except (OSError, pyheaders.HeadersMissing) as err:
        sys.exit(f"gotool: go {' '.join(sys.argv[1:])}: {err}")
