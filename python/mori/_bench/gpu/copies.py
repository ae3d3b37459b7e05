# SPDX-License-Identifier: MIT
"""The raw limit: the driver's own copies, timed by events of the stream that they are on."""

from __future__ import annotations

from collections.abc import Iterable

from mori import _core, device

from ..moves import median_us

Move = tuple[int, int, int]
"""Destination, source, bytes."""

_PATIENCE_S = 60.0


class Copies:
    """A stream of a GPU and two events. Copies to and from `peers` go straight."""

    def __init__(self, gpu: int, *peers: int) -> None:
        for peer in peers:
            _core.call("DeviceEnablePeer", gpu, peer)
        self._stream = device.Stream(gpu)
        self._begin, self._end = device.Event(gpu), device.Event(gpu)

    def seconds(self, moves: Iterable[Move]) -> float:
        """How long the stream takes for all of them, in order."""
        self._begin.record(self._stream)
        for dst, src, size in moves:
            device.copy(dst, src, size, self._stream)
        self._end.record(self._stream)
        self._end.wait(_PATIENCE_S)
        return self._end.elapsed_ms(self._begin) / 1e3

    def latency_us(self, moves: list[Move]) -> float:
        """Median of a copy and the wait for it, as a caller in Python sees it."""
        left = list(moves)

        def once() -> None:
            dst, src, size = left.pop()
            device.copy(dst, src, size, self._stream)
            self._stream.wait(_PATIENCE_S)

        return median_us(once, len(left))
