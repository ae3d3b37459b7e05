# SPDX-License-Identifier: MIT
"""Base of memory, streams and events: a native handle that is freed once, and waits in slices."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

from .. import _core
from .._errors import BadStateError, MoriTimeoutError

_SLICE_MS = 100
_Kind = TypeVar("_Kind", bound="Owned")


def _give_back(function: str, handle: int, owner_pid: int) -> None:
    # In a forked child the driver does not work; the handle belongs to the parent.
    if os.getpid() == owner_pid:
        _core.call(function, handle)


class Owned:
    """A native handle. ``close()``, ``with`` or dropping the last reference closes it."""

    def __init__(self, handle: int, close: str) -> None:
        self._native = handle
        self._finalizer = weakref.finalize(self, _give_back, close, handle, os.getpid())
        # The driver frees everything when the process ends. Freeing at interpreter exit could hit
        # work that is still pending.
        self._finalizer.atexit = False

    @property
    def closed(self) -> bool:
        """Whether the handle is closed."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Free it. No work may be using it. Further calls do nothing."""
        self._finalizer()

    def _handle(self) -> int:
        if not self._finalizer.alive:
            raise BadStateError(f"the {type(self).__name__} is closed")
        return self._native

    def _wait(self, function: str, timeout: float | None, what: str) -> None:
        for slice_ms in slices(timeout):
            if _core.call(function, self._handle(), slice_ms):
                return
        raise MoriTimeoutError(f"{what} after {timeout} s: the GPU has not finished")

    def __enter__(self: _Kind) -> _Kind:
        self._handle()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __copy__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied: it represents one driver object")

    def __deepcopy__(self, _memo: object) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it belongs to this process")


def slices(timeout: float | None) -> Iterator[int]:
    """Yield the lengths in milliseconds of successive waits, until ``timeout`` seconds have passed.

    Yields at least once. None means without limit.
    """
    if timeout is not None and (math.isnan(timeout) or timeout < 0):
        raise ValueError(f"timeout must be None or at least 0 seconds, got {timeout!r}")
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE_MS if end is None else math.ceil((end - time.monotonic()) * 1000)
        yield max(0, min(_SLICE_MS, left))
        if end is not None and time.monotonic() >= end:
            return
