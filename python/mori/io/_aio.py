# SPDX-License-Identifier: MIT
"""Awaiting transfers in asyncio, with one file descriptor for each event loop and no thread."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import TYPE_CHECKING

from .. import _core

if TYPE_CHECKING:
    from ._status import TransferStatus


def _close(watcher: int) -> None:
    if _core.loaded():
        _core.call("WatcherClose", watcher)


class _Waiters:
    """The pending futures of one event loop.

    Each has a token. The native watcher returns the tokens of the statuses that have ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._tokens = itertools.count(1)
        self._watcher: int = _core.call("WatcherOpen")
        self._closer = weakref.finalize(self, _close, self._watcher)
        loop.add_reader(_core.call("WatcherFD", self._watcher), self._wake)

    def _wake(self) -> None:
        for token in _core.call("WatcherTake", self._watcher).split():
            future = self._futures.pop(int(token), None)
            if future is not None and not future.done():
                future.set_result(None)

    async def wait(self, status: TransferStatus, loop: asyncio.AbstractEventLoop) -> None:
        token = next(self._tokens)
        future = self._futures[token] = loop.create_future()
        try:
            _core.call("StatusWatch", status._handle(), self._watcher, token)
            await future
        finally:
            self._futures.pop(token, None)


_waiters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiters] = weakref.WeakKeyDictionary()


async def wait(status: TransferStatus) -> None:
    """Wait until ``status`` is not IN_PROGRESS, without blocking the event loop."""
    while status.InProgress():
        loop = asyncio.get_running_loop()
        waiters = _waiters.get(loop)
        if waiters is None:
            waiters = _waiters[loop] = _Waiters(loop)
        await waiters.wait(status, loop)
