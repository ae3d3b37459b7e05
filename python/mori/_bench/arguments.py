# SPDX-License-Identifier: MIT
"""Arguments of `mori bench`, `mori demo` and `mori tune`: numbers within bounds, and lists of numbers."""

from __future__ import annotations

import argparse
import math
from typing import Any


class _Bounded(argparse.Action):
    """Stores a number. A number out of bounds ends the program with an error that names the argument."""

    def __init__(self, least: float, most: float, **options: Any) -> None:
        super().__init__(**options)
        self._least, self._most = least, most

    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, option: str | None = None) -> None:
        if not self._least <= value <= self._most:
            bounds = f"at least {self._least}" if self._most == math.inf else f"{self._least} to {self._most}"
            parser.error(f"{option or self.dest} must be {bounds}, got {value}")
        setattr(namespace, self.dest, value)


def number(
    parser: Any, name: str, default: float | None, meaning: str, least: float = 1, most: float = math.inf, **more: Any
) -> None:
    """Add a whole number. Its help is the meaning with the default, unless the meaning says it."""
    known = meaning if default is None or "default" in meaning else f"{meaning} (default {default})"
    options = {"type": int, "metavar": "N", "default": default, "help": known, **more}
    parser.add_argument(name, action=_Bounded, least=least, most=most, **options)


def numbers(option: str, text: str) -> list[int]:
    """Return a list of numbers with commas between them. Raises ValueError that names the option."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} {text}: give numbers with commas between them") from None
