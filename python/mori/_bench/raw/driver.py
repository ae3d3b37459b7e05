# SPDX-License-Identifier: MIT
"""The memcpy of a GPU's driver, timed by events of the stream that it runs on."""

from __future__ import annotations

from collections.abc import Iterable

from mori import _core, device

from ..harness import median_us

Move = tuple[int, int, int]
"""Destination, source, bytes."""

_TIMEOUT_S = 60.0


class Copies:
    """A stream of a GPU and two events. The GPU maps the memory of `peers`."""

    def __init__(self, gpu: int, *peers: int) -> None:
        for peer in peers:
            _core.call("DeviceEnablePeer", gpu, peer)
        self._stream = device.Stream(gpu)
        self._begin, self._end = device.Event(gpu), device.Event(gpu)

    def seconds(self, moves: Iterable[Move]) -> float:
        """Copy in order and return how long the stream was busy."""
        self._begin.record(self._stream)
        for dst, src, size in moves:
            device.copy(dst, src, size, self._stream)
        self._end.record(self._stream)
        self._end.wait(_TIMEOUT_S)
        return self._end.elapsed_ms(self._begin) / 1e3

    def latency_us(self, moves: Iterable[Move]) -> float:
        """Return the median of a copy and the wait for it, as a caller in Python sees it."""
        left = list(moves)

        def once() -> None:
            device.copy(*left.pop(), self._stream)
            self._stream.wait(_TIMEOUT_S)

        return median_us(once, len(left))
