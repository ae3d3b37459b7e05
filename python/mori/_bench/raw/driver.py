# SPDX-License-Identifier: MIT
"""The memcpy of a GPU's driver, timed by events of the stream that it runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mori import _core, device

from ..harness import Turn, median_us

Move = tuple[int, int, int]
"""Destination, source, bytes."""

TIMEOUT_S = 60.0


class Copies:
    """A stream `on` a GPU and two events. The GPU maps the memory of `peers`."""

    def __init__(self, gpu: int, *peers: int, on: device.Stream | None = None) -> None:
        for peer in peers:
            _core.call("DeviceEnablePeer", gpu, peer)
        self.on = on or device.Stream(gpu)
        self._begin, self._end = device.Event(gpu), device.Event(gpu)

    def timed(self, work: Callable[[], object]) -> float:
        """Return the seconds that the stream is busy with what work queues."""
        self._begin.record(self.on)
        work()
        self._end.record(self.on)
        self._end.wait(TIMEOUT_S)
        return float(self._end.elapsed_ms(self._begin)) / 1e3

    def _queue(self, moves: Sequence[Move]) -> None:
        for dst, src, size in moves:
            device.copy(dst, src, size, self.on)

    def seconds(self, moves: Sequence[Move]) -> float:
        """Copy in order and return how long the stream was busy."""
        return self.timed(lambda: self._queue(moves))

    def stream(self, moves: Sequence[Move]) -> Turn:
        """Return a turn that copies in order: GB/s."""
        total = sum(size for _, _, size in moves)
        return lambda: total / self.seconds(moves) / 1e9

    def latency_us(self, moves: Sequence[Move]) -> float:
        """Return the median of a copy and the wait for it, as a caller in Python sees it."""
        left = list(moves)

        def once() -> None:
            device.copy(*left.pop(), self.on)
            self.on.wait(TIMEOUT_S)

        return median_us(once, len(left))
