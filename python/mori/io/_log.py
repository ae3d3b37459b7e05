# SPDX-License-Identifier: MIT
"""The log level of mori.io."""

from __future__ import annotations

from .. import _core


def set_log_level(level: str) -> None:
    """Choose what is logged to stdout.

    Args:
        level: trace, debug, info, warn, error or critical, in any case; anything else means error. It beats the
            environment variables. Before the first engine is made the choice is kept for then.
    """
    if not isinstance(level, str):
        raise TypeError(f"level must be a str, got {level!r}")
    _core.set_log_level(level)
