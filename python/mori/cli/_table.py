# SPDX-License-Identifier: MIT
"""Plain text tables."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Any


def cell(value: Any) -> str:
    """Format a value for people: no braces or quotes, yes or no for bools, a dash for nothing."""
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(entry) for entry in value)
    return str(value)


def table(rows: Sequence[dict[str, Any]], indent: str = "") -> str:
    """Format rows, with their keys as headings and the last column wrapped to the terminal."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, *([cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    start = len(indent) + sum(width + 2 for width in widths[:-1])
    room = max(24, shutil.get_terminal_size().columns - start)
    out = []
    for line in lines:
        head = "".join(text.ljust(width + 2) for text, width in zip(line[:-1], widths[:-1], strict=True))
        wrapped = textwrap.wrap(line[-1], room) or [""]
        out.append(indent + head + wrapped[0])
        out.extend(" " * start + more for more in wrapped[1:])
    return "\n".join(text.rstrip() for text in out)


def pairs(facts: dict[str, Any], indent: str = "") -> str:
    """Format facts, one a line, with aligned names."""
    width = max((len(name) for name in facts), default=0) + 2
    room = max(24, shutil.get_terminal_size().columns - len(indent) - width)
    out = []
    for name, value in facts.items():
        wrapped = textwrap.wrap(cell(value), room) or ["-"]
        out.append(indent + name.ljust(width) + wrapped[0])
        out.extend(indent + " " * width + more for more in wrapped[1:])
    return "\n".join(out)
