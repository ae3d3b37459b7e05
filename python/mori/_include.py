# SPDX-License-Identifier: MIT
"""Location of the C++ headers for kernels."""

from __future__ import annotations

from pathlib import Path


def get_include() -> str:
    """Return the folder for a compiler's ``-I``: ``$(python -c 'import mori; print(mori.get_include())')``.

    Kernels include ``mori/shmem/device.hpp`` and the headers beside it. They need no vendor SDK.

    Raises:
        FileNotFoundError: the headers are missing from this installation.
    """
    here = Path(__file__).resolve().parent
    # The first path is that of a wheel, the second that of the source tree.
    for folder in (here / "include", here.parents[1] / "native" / "include"):
        if (folder / "mori" / "shmem" / "device.hpp").is_file():
            return str(folder)
    raise FileNotFoundError(f"no headers of kernels in {here / 'include'}: install mori again")
