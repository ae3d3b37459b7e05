# SPDX-License-Identifier: MIT
"""The file of the best launches. ep/internal/launch/tuning.go defines its contents and uses it."""

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
    """The best launch of a call and its microseconds; `before` are those of the default launch."""

    call: str
    row_bytes: int
    tokens: int
    blocks: int
    warps: int
    us: float
    before: float


def known() -> dict[str, Any]:
    """Return path and tables of the file that mode AUTO uses, or its problem.

    `named` says whether MORI_EP_TUNING_CONFIG names it.
    """
    facts: dict[str, Any] = json.loads(_core.call("EPTuning"))
    return facts


def store(path: Path, device: str, ranks: int, rules: Iterable[Rule]) -> None:
    """Replace the table of a device and number of ranks in the file. Other tables stay.

    Raises ValueError if the file contains something else.
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
        whole = json.loads(path.read_text(encoding="utf-8"))
        if whole["version"] != VERSION:
            raise ValueError(f"version {whole['version']}")
        return [dict(one) for one in whole["tables"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as err:
        advice = "remove it or choose another --output"
        raise ValueError(f"{path} is not a file of tuning tables ({err}); {advice}") from None
