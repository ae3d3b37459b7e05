# SPDX-License-Identifier: MIT
"""The log level of mori.io."""

from __future__ import annotations

from .. import _core


def set_log_level(level: str) -> None:
    """Set the level of the log on stdout.

    Args:
        level: trace, debug, info, warn, error or critical, in upper or lower case; anything else
            means error. It overrides the environment variables. A level set before the first engine
            is made applies from then on.
    """
    if not isinstance(level, str):
        raise TypeError(f"level must be a str, got {level!r}")
    _core.set_log_level(level)
