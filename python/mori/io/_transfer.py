# SPDX-License-Identifier: MIT
"""Options of a transfer.

Every transfer call in Python ends in ``_fast.post`` or ``_fast.post_one`` (pybind/post.c). Both
take session, is_write, offsets, sizes and uid, and optionally ``deadline_ms``, ``tag`` and
``after``. If one of these three is not None, the extension calls :func:`options` to check them.
"""

from __future__ import annotations

import operator
from typing import Any

from .._errors import BadStateError, InvalidArgumentError

MAX_TAG = 64
"""Most bytes of a tag in UTF-8."""

_SESSIONS_DEADLINE = -1
_AFTER_NOTHING, _AFTER_EVENT, _AFTER_STREAM = range(3)


def options(deadline_ms: Any, tag: Any, after: Any) -> tuple[int, str, int, int, int]:
    """Check the options of a transfer and convert them for the extension.

    Returns:
        The deadline in milliseconds or -1, the tag or "", what to wait for (0 nothing, 1 an event,
        2 a stream), its native handle, and its GPU number.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: the deadline is negative, the tag is empty or too long, or the event was never recorded.
        BadStateError: ``after`` is closed.
    """
    return (
        _SESSIONS_DEADLINE if deadline_ms is None else check_deadline(deadline_ms),
        "" if tag is None else check_tag(tag),
        *((_AFTER_NOTHING, 0, 0) if after is None else _gate(after)),
    )


def check_deadline(deadline_ms: Any) -> int:
    """Return ``deadline_ms`` as an int; raise if it is not one or is out of range."""
    ms = operator.index(deadline_ms)
    if not 0 <= ms < 2**31:
        raise InvalidArgumentError(f"deadline_ms is {ms}, want 0 (none) to 2**31-1")
    return ms


def check_tag(tag: Any) -> str:
    """Return ``tag`` if it is valid; raise otherwise."""
    if not isinstance(tag, str):
        raise TypeError(f"tag must be a str, got {tag!r}")
    size = len(tag.encode())
    if not 1 <= size <= MAX_TAG:
        raise InvalidArgumentError(f"tag is {size} bytes of UTF-8, want 1 to {MAX_TAG}: {tag[:80]!r}")
    return tag


def _gate(after: Any) -> tuple[int, int, int]:
    """Return the kind, handle and GPU of an event or a stream.

    A bare handle is refused: it does not say whether it is an event or a stream, nor on which GPU.
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
    return _AFTER_STREAM if on_stream else _AFTER_EVENT, int(handle), index if isinstance(index, int) else 0
