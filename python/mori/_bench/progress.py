# SPDX-License-Identifier: MIT
"""A progress bar on stderr when somebody looks at it, nothing otherwise."""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol


class Bar(Protocol):
    """The part of a tqdm bar that is used here."""

    def __enter__(self) -> Bar: ...

    def __exit__(self, *failure: Any) -> None: ...

    def update(self, n: float = 1) -> Any: ...

    def set_description(self, desc: str) -> Any: ...


class _NoBar:
    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *failure: Any) -> None:
        pass

    def update(self, n: float = 1) -> None:
        pass

    def set_description(self, desc: str) -> None:
        pass


def bar(total: float, *, quiet: bool = False, leave: bool = False, **options: Any) -> Bar:
    """A tqdm bar with its options when stderr is a terminal and tqdm is installed; else a silent stand-in."""
    if quiet or not sys.stderr.isatty():
        return _NoBar()
    try:
        from tqdm import tqdm
    except ImportError:
        return _NoBar()
    made: Bar = tqdm(total=total, file=sys.stderr, leave=leave, dynamic_ncols=True, **options)
    return made


def colour(text: str, code: int) -> str:
    """The text in an ANSI colour when stdout is a terminal and NO_COLOR is not set."""
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


GREEN, RED, BOLD = 32, 31, 1
