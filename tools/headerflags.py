#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Say which native/include and native/kernels there are, as a C++ compiler flag.

    python tools/headerflags.py        prints "-DMORI_NATIVE_SOURCES=..."

Go's build cache looks at the files of a package's own folder. native/nic and native/proxy include others, which it
would take for unchanged; with this flag in CGO_CXXFLAGS it does not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cgo_flags() -> str:
    """The digest of all sources as the text of CGO_CXXFLAGS."""
    digest = hashlib.sha256()
    for folder in ("include", "kernels"):
        for path in sorted((ROOT / "native" / folder).rglob("*.[ch]pp")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return f"-DMORI_NATIVE_SOURCES=0x{digest.hexdigest()[:15]}"


if __name__ == "__main__":
    print(cgo_flags())
