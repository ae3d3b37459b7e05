# SPDX-License-Identifier: MIT
"""The copy kernel of the FABRIC backend.

It runs on GPUs that this build of mori does not drive, so it has no module to load; the backend works without it.
"""

from __future__ import annotations

from .._errors import UnsupportedError


def available() -> bool:
    """Tell whether the kernel can be loaded on this host."""
    return False


def load() -> str:
    """Return the path of the compiled kernel.

    Raises:
        UnsupportedError: there is no GPU that could run it.
    """
    raise UnsupportedError("the fabric copy kernel needs a GPU with a FABRIC backend, and this build has none")


def ensure_fabric_copy_kernel() -> bool:
    """Return False: no GPU here runs the kernel, and the FABRIC backend works without it."""
    return False
