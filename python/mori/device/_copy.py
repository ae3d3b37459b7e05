# SPDX-License-Identifier: MIT
"""Copies and fills, with or without a stream."""

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

# Most bytes that one driver call copies. Copies of host memory that is not pinned block inside the
# driver; Ctrl-C is handled between two calls.
_PIECE = 64 << 20
_GRACE = 10.0  # seconds

_lock = threading.Lock()
_workers: dict[int, Stream] = {}


def copy(dst: Any, src: Any, nbytes: int, stream: Any = None) -> None:
    """Copy ``nbytes`` bytes between addresses of any kind: of any GPU, pinned, or ordinary host memory.

    Args:
        dst: address, or an object with ``ptr`` such as :class:`DeviceMemory` or
            :class:`HostMemory`.
        src: the same; the ranges must not overlap.
        nbytes: number of bytes.
        stream: queue the copy on this stream of the GPU whose memory is copied. It may be a
            :class:`Stream`, an object with ``cuda_stream`` such as torch's, or the driver's handle.
            The call returns before the copy is done, unless it involves ordinary host memory. Keep
            the memory valid until it is done. With None, the copy runs after the earlier work of
            the default streams of both sides' GPUs, and is done on return.

    Raises:
        InvalidArgumentError: a range is not inside one GPU allocation, an argument is not an
            address, or the GPUs are from two vendors.
        BadStateError: an object is closed.
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
    """Copy after the earlier work of the default streams of ``gpus``, and wait for the copy."""
    _settle(gpus)
    stream = _worker(gpus[0])
    with Event(gpus[0], timing=False) as event:
        for at in range(0, nbytes, _PIECE):
            _core.call("StreamCopy", stream._handle(), dst + at, src + at, min(_PIECE, nbytes - at))
            _finish(event, stream)


def fill(gpu: int, dst: int, value: int, nbytes: int) -> None:
    """Fill after the earlier work of the default stream of ``gpu``, and wait for it."""
    _settle([gpu])
    stream = _worker(gpu)
    with Event(gpu, timing=False) as event:
        _core.call("StreamSet", stream._handle(), dst, value, nbytes)
        _finish(event, stream)


def _finish(event: Event, stream: Stream) -> None:
    """Wait for the work queued on our stream.

    On Ctrl-C, also wait for the piece being copied, because the caller may free its memory next.
    """
    event.record(stream)
    try:
        event.wait()
    except BaseException:
        with contextlib.suppress(MoriError):
            event.wait(_GRACE)
        raise


def _settle(gpus: list[int]) -> None:
    # Wait on the host, not on our stream: a copy of ordinary host memory would wait inside the
    # driver, where Ctrl-C has no effect.
    for gpu in gpus:
        with Event(gpu, timing=False) as event:
            event.record()
            event.wait()


def _worker(gpu: int) -> Stream:
    """Return the stream for calls without a stream. It lives as long as the process."""
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
    """Return the GPU of the first address in ``places`` that is GPU memory; 0 if none is."""
    return next((known.device for known in map(lookup, places) if known.device >= 0), 0)


def _inside(ptr: int, nbytes: int, what: str) -> Pointer:
    """Return what the drivers know about a range; raise if it exceeds its allocation."""
    known = lookup(ptr)
    end = known.base + known.nbytes
    if ptr == 0 or (known.base and ptr + nbytes > end):
        room = f"the allocation ends after {end - ptr} bytes" if ptr else "it is not an address"
        raise InvalidArgumentError(f"copy {nbytes} bytes, {what} {ptr:#x}: {room}")
    return known
