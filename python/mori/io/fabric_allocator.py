# SPDX-License-Identifier: MIT
"""GPU memory that other hosts of a scale-up domain can map. Not supported in this build.

These functions need a native allocator that no build of mori for this host includes. The raw calls
return 0, as the API requires; the torch helpers raise FileNotFoundError. ``mori doctor`` reports
what the host has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_LIBRARY = "libmori_io_fabric.so"


def fabric_alloc(size: int, device: int) -> int:
    """Allocate ``size`` bytes on GPU ``device`` and return the address; 0 if not supported here."""
    return 0


def fabric_free(ptr: int) -> None:
    """Free what :func:`fabric_alloc` returned; 0 is ignored.

    Raises:
        ValueError: the address is not from ``fabric_alloc``.
    """
    if ptr:
        raise ValueError(f"fabric_free: {ptr:#x} was not allocated by fabric_alloc")


def fabric_torch_allocator() -> Any:
    """Return a torch ``CUDAPluggableAllocator`` over fabric memory.

    Raises:
        FileNotFoundError: the native library is missing.
    """
    _missing()


def use_fabric_torch_allocator() -> None:
    """Make torch allocate fabric memory only; raises like :func:`fabric_torch_allocator`."""
    _missing()


def make_fabric_mem_pool() -> Any:
    """Return a fabric ``torch.cuda.MemPool``; raises like :func:`fabric_torch_allocator`."""
    _missing()


@contextmanager
def fabric_mem_pool() -> Iterator[Any]:
    """Make torch allocate from a fabric pool inside the ``with`` block; yield the pool."""
    yield make_fabric_mem_pool()


def _missing() -> NoReturn:
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_native", _LIBRARY)
    raise FileNotFoundError(f"fabric memory needs a GPU with fabric handles and {path}, which does not exist")
