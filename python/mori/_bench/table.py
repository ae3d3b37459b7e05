# SPDX-License-Identifier: MIT
"""The table of docs/benchmarks.md for GPUs: `python -m mori._bench.table FILE...`, of what `--json` printed.

Lines of all files go into one table in the order of the cases; of several results of a case the last counts. A case
without any is "not yet measured". Without files it is the table of what is expected.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .gpu.cases import IO_CASES, SHMEM_CASES, GPUCase, ShmemCase
from .report import figure

_HEAD = ("case", "predicted", "measured", "limit in the same run", "ratio", "aim")
_NOT_YET = "not yet measured"


def rows(results: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """The cells of each case, by its result if there is one."""
    cases: tuple[GPUCase | ShmemCase, ...] = (*IO_CASES, *SHMEM_CASES)
    for case in cases:
        aim = str(case.target or "")
        if (one := results.get(case.name)) is None:
            yield f"`{case.name}`", case.predicted, _NOT_YET, "", "", aim
        else:
            yield f"`{case.name}`", case.predicted, _measured(one), _limit(one), _ratio(one), f"{aim}{_verdict(one)}"


def _measured(one: dict[str, Any]) -> str:
    told = f"{figure(one['value'])} {one['unit']}"
    if "alone" in one:
        told += f"; {figure(one['alone'])} one at a time"
    return told + _labels(one)


def _labels(one: dict[str, Any]) -> str:
    labels = ["emulated"] if one.get("emulated") else []
    labels += ["quick"] if one.get("quick") else []
    labels += ["one GPU"] if one.get("gpus") == 1 and not one["case"].startswith("gpu-host") else []
    return f" ({', '.join(labels)})" if labels else ""


def _limit(one: dict[str, Any]) -> str:
    if one["raw"] is None:
        return ""
    samples = {name: sorted(some)[len(some) // 2] for name, some in one["raw_samples"].items()}
    name = min(samples, key=lambda name: abs(samples[name] - one["raw"]))
    others = [f"{other} {figure(value)}" for other, value in samples.items() if other == "memcpy each"]
    return "; ".join([f"{name} {figure(one['raw'])}", *others])


def _ratio(one: dict[str, Any]) -> str:
    return "" if one["ratio"] is None else f"{one['ratio']:.2f}"


def _verdict(one: dict[str, Any]) -> str:
    return "" if one["ok"] is not False else ", missed"


def markdown(lines: Iterable[str]) -> str:
    """The table of the JSON lines. Raises ValueError for a line that is no result."""
    results = {}
    for line in filter(str.strip, lines):
        try:
            one = json.loads(line)
            results[one["case"]] = one
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"no line of mori bench --json: {line.strip()[:80]!r}") from None
    table = [_HEAD, ("---",) * len(_HEAD), *rows(results)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table).replace(" us", " µs")


def main(files: list[str]) -> int:
    try:
        print(markdown(line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as err:
        print(f"mori._bench.table: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
