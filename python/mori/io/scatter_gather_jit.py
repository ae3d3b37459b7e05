# SPDX-License-Identifier: MIT
"""The kernel that moves many small blocks for the XGMI backend.

mori ships it compiled and loads it at first use, so nothing is compiled or loaded here.
"""

from __future__ import annotations

from .._errors import UnsupportedError


def available() -> bool:
    """Return False: there is no separate kernel to load."""
    return False


def load() -> str:
    """Return the path of the compiled kernel.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError("mori contains its compiled scatter/gather kernel: nothing to load")


def ensure_scatter_gather_kernel() -> bool:
    """Return True: the kernel is compiled and loads at first use."""
    return True
