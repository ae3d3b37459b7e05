# SPDX-License-Identifier: MIT
"""The file of launches that were measured to be the best: ep/tuning.go says what is in it and how it is used."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import _core

VERSION = 1


@dataclass(frozen=True)
class Rule:
    """The best launch of a call, which took `us` microseconds; `before` is what it took as mori chose by itself."""

    call: str
    row_bytes: int
    tokens: int
    blocks: int
    warps: int
    us: float
    before: float


@dataclass(frozen=True)
class Known:
    """What the native side says of the file that it would use.

    Attributes:
        path: where it is.
        named: whether MORI_EP_TUNING_CONFIG says so.
        tables: what is in it.
        problem: why it cannot be used, or nothing.
    """

    path: Path
    named: bool
    tables: list[dict[str, Any]]
    problem: str


def known() -> Known:
    """Look at the file that mode AUTO uses."""
    told = json.loads(_core.call("EPTuning"))
    return Known(Path(told["path"]), told["named"], told["tables"] or [], told["problem"])


def keep(path: Path, device: str, ranks: int, rules: Iterable[Rule]) -> None:
    """Put a table into the file instead of that of the same device and number of ranks. Others stay.

    Raises ValueError if the file has something else in it.
    """
    tables = [one for one in _tables(path) if (one.get("device"), one.get("ranks")) != (device, ranks)]
    tables.append({"device": device, "ranks": ranks, "rules": [asdict(rule) for rule in rules]})
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump({"version": VERSION, "tables": tables}, file, indent=1)
            file.write("\n")
        Path(name).replace(path)  # readers see the old file or the new one
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _tables(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    try:
        whole = json.loads(text)
        if whole["version"] != VERSION:
            raise ValueError(f"version {whole['version']}")
        return [dict(one) for one in whole["tables"]]
    except (ValueError, KeyError, TypeError) as err:
        raise ValueError(f"{path} is no file of tuning tables ({err}); choose another --output, or remove it") from None
