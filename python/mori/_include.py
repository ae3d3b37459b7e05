# SPDX-License-Identifier: MIT
"""Where the C++ headers are that kernels include."""

from __future__ import annotations

from pathlib import Path


def get_include() -> str:
    """Return the folder for a compiler's ``-I``: ``$(python -c 'import mori; print(mori.get_include())')``.

    Kernels include ``mori/shmem/device.hpp`` and its neighbours from there, which need no vendor's SDK.

    Raises:
        FileNotFoundError: this installation has lost them.
    """
    here = Path(__file__).resolve().parent
    # In a wheel, and in the source tree.
    for folder in (here / "include", here.parents[1] / "native" / "include"):
        if (folder / "mori" / "shmem" / "device.hpp").is_file():
            return str(folder)
    raise FileNotFoundError(f"no headers of kernels in {here / 'include'}: install mori again")
