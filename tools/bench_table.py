# SPDX-License-Identifier: MIT
"""Prints the table of GPU results for the documentation: `python tools/bench_table.py FILE...`.

The files hold the output of `mori bench io|shmem --device gpu --json`. The table has all cases in
their order; the last result of a case counts. Without files it has the predicted figures alone.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mori._bench import io, shmem
from mori._bench.report import figure, nearest

_HEAD = ("case", "predicted", "measured", "limit in the same run", "ratio", "aim")
_NOT_YET = "not yet measured"


def rows(results: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each case, with its result if there is one."""
    for case in (*io.GPU_CASES, *shmem.GPU_CASES):
        aim = str(case.target or "")
        if (one := results.get(case.name)) is None:
            yield f"`{case.name}`", case.predicted, _NOT_YET, "", "", aim
        else:
            yield f"`{case.name}`", case.predicted, _measured(one), _limit(one), _ratio(one), f"{aim}{_verdict(one)}"


def _measured(one: dict[str, Any]) -> str:
    text = f"{figure(one['value'])} {one['unit']}"
    if "alone" in one:
        text += f"; {figure(one['alone'])} one at a time"
    return text + _labels(one)


def _labels(one: dict[str, Any]) -> str:
    labels = ["emulated"] if one.get("emulated") else []
    labels += ["quick"] if one.get("quick") else []
    labels += ["one GPU"] if one.get("gpus") == 1 and not one["case"].startswith("gpu-host") else []
    return f" ({', '.join(labels)})" if labels else ""


def _limit(one: dict[str, Any]) -> str:
    if one["raw"] is None:
        return ""
    samples = one["raw_samples"]
    name = nearest(samples, one["raw"])
    others = [f"memcpy each {figure(statistics.median(samples['memcpy each']))}"] if "memcpy each" in samples else []
    return "; ".join([f"{name} {figure(one['raw'])}", *others])


def _ratio(one: dict[str, Any]) -> str:
    return "" if one["ratio"] is None else f"{one['ratio']:.2f}"


def _verdict(one: dict[str, Any]) -> str:
    return "" if one["ok"] is not False else ", missed"


def markdown(lines: Iterable[str]) -> str:
    """Return the table of JSON lines. Raises ValueError for a line that is not a result."""
    results = {}
    for line in filter(str.strip, lines):
        try:
            one = json.loads(line)
            results[one["case"]] = one
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"not a line of mori bench --json: {line.strip()[:80]!r}") from None
    table = [_HEAD, ("---",) * len(_HEAD), *rows(results)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table).replace(" us", " µs")


def main(files: list[str]) -> int:
    try:
        print(markdown(line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as err:
        print(f"bench_table: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
