# SPDX-License-Identifier: MIT
"""Location of the device library."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mori import _kernels

_LIBRARY = "shmem_library"
# NVIDIA GPUs run code for older ones.
_OLDEST_SM = 80


def architectures() -> list[str]:
    """Return the library's target architectures. ``sm_80`` works on all later NVIDIA GPUs."""
    return sorted(path.name.split(".")[1] for path in _kernels.DIRECTORY.glob(f"{_LIBRARY}.*.bc"))


def bitcode(arch: str | int) -> str:
    """Return the path of the device library as LLVM bitcode.

    Args:
        arch: ``"sm_90"``, ``"gfx942"``, and so on; for NVIDIA GPUs also the number, as in Triton
            (90).

    Raises:
        ValueError: The library is not compiled for that GPU.

    The environment variable ``MORI_SHMEM_BC`` names a file to use instead, for every GPU.
    """
    given = os.environ.get("MORI_SHMEM_BC")
    if given:
        if not Path(given).is_file():
            raise ValueError(f"MORI_SHMEM_BC={given}: no such file")
        return given
    name = f"sm_{arch}" if isinstance(arch, int) else arch
    found = _kernels.DIRECTORY / f"{_LIBRARY}.{_compiled_for(name)}.bc"
    if not found.is_file():
        raise ValueError(
            f"the device library is not for {name!r}, but for {', '.join(architectures())} (sm_80: and later). "
            "Compile native/kernels/shmem/library.cpp as tools/kernels.py does, and name the file in MORI_SHMEM_BC"
        )
    return str(found)


def _compiled_for(arch: str) -> str:
    """Return the architecture whose code runs on ``arch``; ``arch`` itself if none is known."""
    version = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if version and int(version[1]) >= _OLDEST_SM:
        return f"sm_{_OLDEST_SM}"
    return arch.split(":")[0]  # AMD names may end in features: gfx942:sramecc+
