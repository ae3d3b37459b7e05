# SPDX-License-Identifier: MIT
"""Copies and fills, with a stream and without."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any

from .. import _core
from .._errors import InvalidArgumentError, MoriError
from ._info import Pointer, lookup, uint64
from ._owned import Owned
from ._stream import Event, Stream, as_stream

# A call into the driver is at most so long, as copies of host memory that is not pinned go on inside of it: Ctrl-C
# comes between.
_PIECE = 64 << 20
_GRACE = 10.0  # seconds

_lock = threading.Lock()
_workers: dict[int, Stream] = {}


def copy(dst: Any, src: Any, nbytes: int, stream: Any = None) -> None:
    """Copy ``nbytes`` bytes between addresses of any kind: of any GPU, pinned, or ordinary host memory.

    Args:
        dst: address, or something with ``ptr``: :class:`DeviceMemory`, :class:`HostMemory`.
        src: the same; the ranges must not overlap.
        nbytes: how many.
        stream: do it on this stream and return before it is done, unless ordinary host memory is among it. The memory
            must stay until it is. A stream is ours, what has ``cuda_stream`` as torch's, or the driver's handle, of the
            GPU whose memory is copied. None: after what the default streams of the GPUs of both were given before, and
            done on return.

    Raises:
        InvalidArgumentError: the range is not inside of one allocation of a GPU, or not an address, or the GPUs are of
            two vendors.
        BadStateError: something was closed.
    """
    to, at, count = _address(dst, "dst"), _address(src, "src"), uint64(nbytes, "nbytes")
    if stream is not None:
        on = as_stream(stream, _gpu_of(to, at) if isinstance(stream, int) else 0)
        if count:
            _core.call("StreamCopy", on._handle(), to, at, count)
        return
    if count == 0:
        return
    known = [_inside(to, count, "dst"), _inside(at, count, "src")]
    if {place.api for place in known} == {"CUDA", "HIP"}:
        pair = f"from GPU {known[1].device} to GPU {known[0].device}"
        raise InvalidArgumentError(f"copy {count} bytes {pair}: no driver can access both, so copy through host memory")
    gpus = sorted({place.device for place in known if place.device >= 0})
    if gpus:
        move(gpus, to, at, count)
    else:
        ctypes.memmove(to, at, count)


def move(gpus: list[int], dst: int, src: int, nbytes: int) -> None:
    """Copy when the default streams of ``gpus`` have done what they were given, and wait for the copy."""
    _settle(gpus)
    stream = _worker(gpus[0])
    with Event(gpus[0], timing=False) as event:
        for at in range(0, nbytes, _PIECE):
            _core.call("StreamCopy", stream._handle(), dst + at, src + at, min(_PIECE, nbytes - at))
            _finish(event, stream)


def fill(gpu: int, dst: int, value: int, nbytes: int) -> None:
    """Fill when the default stream of ``gpu`` has done what it was given, and wait for it."""
    _settle([gpu])
    stream = _worker(gpu)
    with Event(gpu, timing=False) as event:
        _core.call("StreamSet", stream._handle(), dst, value, nbytes)
        _finish(event, stream)


def _finish(event: Event, stream: Stream) -> None:
    """Wait for what our stream was given. Ctrl-C lets the piece that is under way end: its memory may be freed next."""
    event.record(stream)
    try:
        event.wait()
    except BaseException:
        with contextlib.suppress(MoriError):
            event.wait(_GRACE)
        raise


def _settle(gpus: list[int]) -> None:
    # The host waits, not our stream: copies of ordinary host memory would wait inside of the driver, deaf to Ctrl-C.
    for gpu in gpus:
        with Event(gpu, timing=False) as event:
            event.record()
            event.wait()


def _worker(gpu: int) -> Stream:
    """Return the stream that calls without one use. It stays for the life of the process."""
    with _lock:
        stream = _workers.get(gpu)
        if stream is None:
            stream = _workers[gpu] = Stream(gpu)
        return stream


def _address(place: Any, what: str) -> int:
    if isinstance(place, Owned):
        place._handle()
    return uint64(getattr(place, "ptr", place), what)


def _gpu_of(*places: int) -> int:
    """Return the GPU whose memory is among ``places``; the first one's if they are of two."""
    return next((known.device for known in map(lookup, places) if known.device >= 0), 0)


def _inside(ptr: int, nbytes: int, what: str) -> Pointer:
    """Return what the drivers know about a range; its allocation must hold all of it."""
    known = lookup(ptr)
    end = known.base + known.nbytes
    if ptr == 0 or (known.base and ptr + nbytes > end):
        room = f"the allocation ends after {end - ptr} bytes" if ptr else "it is not an address"
        raise InvalidArgumentError(f"copy {nbytes} bytes, {what} {ptr:#x}: {room}")
    return known
