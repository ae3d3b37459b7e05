# SPDX-License-Identifier: MIT
"""Streams and events."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._errors import InvalidArgumentError
from ._info import device_number, uint64
from ._owned import Owned


class Stream(Owned):
    """A queue of GPU work that runs in order, concurrently with other streams.

    It does not synchronise with the default stream. In torch, use
    ``torch.cuda.ExternalStream(stream.cuda_stream)``.

    Args:
        device: GPU number.
        urgent: give it a higher priority than other streams.

    Attributes:
        device: GPU number.
        cuda_stream: the driver's handle, a ``cudaStream_t`` or ``hipStream_t``, under torch's name.

    Raises:
        InvalidArgumentError: no GPU has that number.
        UnsupportedError: there is no GPU.
    """

    def __init__(self, device: int = 0, *, urgent: bool = False) -> None:
        self._adopt(_core.call("StreamNew", device_number(device), bool(urgent)), device)

    @classmethod
    def borrow(cls, stream: Any, device: int | None = None) -> Stream:
        """Return a Stream for a stream that another library owns, and that must outlive its use.

        Args:
            stream: an object with ``cuda_stream``, such as torch's, or the driver's handle; 0 is
                the default stream.
            device: GPU number; None means the stream's own, or 0.
        """
        borrowed = cls.__new__(cls)
        handle = getattr(stream, "cuda_stream", stream)
        number = device_number(_device_of(stream) if device is None else device)
        borrowed._adopt(_core.call("StreamExternal", number, uint64(handle, "stream")), number)
        return borrowed

    def _adopt(self, handle: int, device: int) -> None:
        super().__init__(handle, "StreamClose")
        self.device = device
        self.cuda_stream: int = _core.call("StreamHandle", handle)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the queued work is done.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            MoriTimeoutError: the work is not done in time. It continues.
            MoriError: queued work failed.
        """
        self._wait("StreamWait", timeout, f"wait for {self!r}")

    def done(self) -> bool:
        """Return whether the queued work is done."""
        done: bool = _core.call("StreamWait", self._handle(), 0)
        return done

    def wait_event(self, event: Any) -> None:
        """Make work that is queued later wait for an event. The host does not wait.

        Args:
            event: an :class:`Event`, or an object with ``cuda_event`` such as torch's, on any GPU.
        """
        awaited = as_event(event, self.device)  # keeps a converted event alive
        _core.call("StreamAfter", self._handle(), awaited._handle())

    def record_event(self) -> Event:
        """Return a new event that completes when all work queued so far is done."""
        event = Event(self.device)
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<Stream {self.cuda_stream:#x} on GPU {self.device}{', closed' if self.closed else ''}>"


class Event(Owned):
    """An event, which completes when the work queued on a stream before it is done.

    Args:
        device: GPU number.
        timing: record the time of completion. Events without timing are cheaper.

    Attributes:
        device: GPU number.
        cuda_event: the driver's handle, a ``cudaEvent_t`` or ``hipEvent_t``, under torch's name.

    Raises:
        InvalidArgumentError: no GPU has that number.
        UnsupportedError: there is no GPU.
    """

    def __init__(self, device: int = 0, *, timing: bool = True) -> None:
        self._adopt(_core.call("EventNew", device_number(device), bool(timing)), device)

    @classmethod
    def borrow(cls, event: Any, device: int | None = None) -> Event:
        """Return an Event for an event that another library owns, and that must outlive its use.

        Args:
            event: an object with ``cuda_event``, such as torch's, or the driver's handle. torch
                makes the handle at the first record.
            device: GPU number; None means the event's own, or 0.

        Raises:
            InvalidArgumentError: the event has no handle yet.
        """
        handle = uint64(getattr(event, "cuda_event", event), "event")
        if handle == 0:
            raise InvalidArgumentError(f"{event!r} was never recorded, so the driver has no event for it")
        borrowed = cls.__new__(cls)
        number = device_number(_device_of(event) if device is None else device)
        borrowed._adopt(_core.call("EventExternal", number, handle), number)
        return borrowed

    def _adopt(self, handle: int, device: int) -> None:
        super().__init__(handle, "EventClose")
        self.device = device
        self.cuda_event: int = _core.call("EventHandle", handle)

    def record(self, stream: Any = None) -> None:
        """Record the event on a stream of the same GPU: it completes after the work queued so far.

        This replaces an earlier record.

        Args:
            stream: a :class:`Stream`, an object with ``cuda_stream`` such as torch's, or the
                driver's handle; None is the default stream.
        """
        with_stream = as_stream(stream, self.device)
        if with_stream.device != self.device:
            raise InvalidArgumentError(f"an event of GPU {self.device} cannot be recorded on GPU {with_stream.device}")
        _core.call("EventRecord", self._handle(), with_stream._handle())

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the most recent record completes; return at once if never recorded.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            MoriTimeoutError: the event is not complete in time.
            MoriError: work before it failed.
        """
        self._wait("EventWait", timeout, f"wait for {self!r}")

    def done(self) -> bool:
        """Report whether the most recent record is complete; True if never recorded."""
        done: bool = _core.call("EventWait", self._handle(), 0)
        return done

    def elapsed_ms(self, start: Event) -> float:
        """Return the milliseconds from ``start`` to this event. Both must be complete, with timing.

        Raises:
            InvalidArgumentError: an event was made with ``timing=False``, or never recorded.
        """
        passed: float = _core.call("EventElapsed", self._handle(), start._handle())
        return passed

    def __repr__(self) -> str:
        return f"<Event {self.cuda_event:#x} on GPU {self.device}{', closed' if self.closed else ''}>"


def as_stream(stream: Any, device: int) -> Stream:
    """Convert to a Stream. A bare handle belongs to ``device``; None is its default stream."""
    if isinstance(stream, Stream):
        return stream
    if stream is None or isinstance(stream, int):
        return Stream.borrow(stream or 0, device)
    if not hasattr(stream, "cuda_stream"):
        raise TypeError(f"stream must be a Stream, a handle, or have cuda_stream as torch's have, got {stream!r}")
    return Stream.borrow(stream)


def as_event(event: Any, device: int) -> Event:
    """Convert to an Event."""
    if isinstance(event, Event):
        return event
    if not hasattr(event, "cuda_event"):
        raise TypeError(f"event must be an Event, or have cuda_event as torch's have, got {event!r}")
    return Event.borrow(event, _device_of(event, device))


def _device_of(thing: Any, otherwise: int = 0) -> int:
    """Return the GPU number of a stream or event; torch's ``device`` is an object with an index."""
    device = getattr(thing, "device", None)
    index = getattr(device, "index", device)
    return index if isinstance(index, int) else otherwise
