# SPDX-License-Identifier: MIT
"""The kernel that moves many small blocks for the XGMI backend.

It comes compiled with mori and is loaded when it is first used, so nothing is compiled or loaded here.
"""

from __future__ import annotations

from .._errors import UnsupportedError


def available() -> bool:
    """Tell whether there is a kernel to load: there never is."""
    return False


def load() -> str:
    """Return the path of the compiled kernel.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError("mori contains its compiled scatter/gather kernel: nothing to load")


def ensure_scatter_gather_kernel() -> bool:
    """Return True: the kernel is compiled and loads when it is first used. Nothing is left to do."""
    return True
