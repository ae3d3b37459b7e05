# SPDX-License-Identifier: MIT
"""What a transfer may wait for: an event or a stream of a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from .._errors import BadStateError, InvalidArgumentError, from_native
from ._status import TransferStatus


class Gate(NamedTuple):
    """A point in a GPU's work, as the native side takes it."""

    on_stream: bool
    handle: int
    gpu: int


def gate(after: Any) -> Gate:
    """Return the gate that ``after`` stands for.

    Raises:
        TypeError: it is neither an event nor a stream; a bare number does not say which, nor of what GPU.
        ValueError: it is an event that was never recorded.
        BadStateError: it is closed.
    """
    on_stream = hasattr(after, "cuda_stream")
    if not on_stream and not hasattr(after, "cuda_event"):
        raise TypeError(
            "after must be an event or a stream: of torch.cuda, of mori.device, or another object with cuda_event or"
            f" cuda_stream and device; got {after!r}"
        )
    if getattr(after, "closed", False):
        raise BadStateError(f"after: {after!r} is closed")
    handle = after.cuda_stream if on_stream else after.cuda_event
    if not on_stream and not handle:
        raise InvalidArgumentError(f"after: {after!r} was never recorded, so there is nothing to wait for")
    device = getattr(after, "device", None)
    index = getattr(device, "index", device)
    return Gate(on_stream, int(handle), index if isinstance(index, int) else 0)


def post_after(
    handle: int, is_write: bool, local_offs: Any, remote_offs: Any, sizes: Any, uid: Any, tag: str | None, at: Gate
) -> TransferStatus:
    """Submit a batch of a native session that begins when a GPU has come so far."""
    post = _core.fast().post_after
    named = () if tag is None else (tag,)
    try:
        status: TransferStatus = post(handle, is_write, local_offs, remote_offs, sizes, uid, *at, *named)
    except RuntimeError as err:
        raise from_native(err) from None
    return status
