# SPDX-License-Identifier: MIT
"""The copy kernel of the FABRIC backend.

The kernel is for GPUs that this build of mori does not support, so there is no module to load. The
backend works without it.
"""

from __future__ import annotations

from .._errors import UnsupportedError


def available() -> bool:
    """Report whether the kernel can be loaded on this host."""
    return False


def load() -> str:
    """Return the path of the compiled kernel.

    Raises:
        UnsupportedError: no GPU here can run it.
    """
    raise UnsupportedError("the fabric copy kernel needs a GPU with a FABRIC backend, and this build has none")


def ensure_fabric_copy_kernel() -> bool:
    """Return False: no GPU here runs the kernel, and the FABRIC backend works without it."""
    return False
