# SPDX-License-Identifier: MIT
"""What a call may give beside the bytes: a deadline and a tag."""

from __future__ import annotations

import operator
from typing import Any

from .._errors import InvalidArgumentError

MAX_DEADLINES = 64
"""Deadlines for which a pair of memories keeps a native session."""

MAX_TAG = 64
"""Bytes of a tag in UTF-8."""


def check_tag(tag: Any) -> str:
    """Return ``tag`` if it is one."""
    if not isinstance(tag, str):
        raise TypeError(f"tag must be a str, got {tag!r}")
    size = len(tag.encode())
    if not 1 <= size <= MAX_TAG:
        raise InvalidArgumentError(f"tag is {size} bytes of UTF-8, want 1 to {MAX_TAG}: {tag[:80]!r}")
    return tag


def check_deadline(deadline_ms: Any) -> int:
    """Return ``deadline_ms`` as a number if it is one."""
    ms = operator.index(deadline_ms)
    if not 0 <= ms < 2**31:
        raise InvalidArgumentError(f"deadline_ms is {ms}, want 0 (none) to 2**31-1")
    return ms
