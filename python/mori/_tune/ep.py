# SPDX-License-Identifier: MIT
"""`mori tune ep`: tries launches of dispatch and combine on the GPUs of this host, on all ranks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mori import device

from .._bench import gpus
from .._bench.ep import GPUCase, check_sizes, gpu_case, gpu_ranks, slowest
from .._bench.harness import Unavailable
from .._bench.process import Group, RemoteError
from .._bench.report import bar
from ..cli._table import table
from . import tables
from .tables import Rule

BLOCKS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
WARPS = (4, 8)
TOKENS = (1, 8, 32, 128, 512, 1024, 4096, 8192)
# The name of a call in the tables, the kind of the benchmark's case, the element type, its bytes.
CALLS = (
    ("dispatch", "dispatch", "float8_e4m3fn", 1),
    ("dispatch", "dispatch", "bfloat16", 2),
    ("combine", "combine", "bfloat16", 2),
    ("combine_in_place", "combine-in-place", "bfloat16", 2),
)
_WORTH = 0.98  # a larger launch must save more than this to be preferred
_USE = "MORI_EP_LAUNCH_CONFIG_MODE=AUTO makes ops use it"


def main(argv: list[str]) -> int:
    """Return 0 if the table was written or shown, 1 if not, 2 for bad arguments."""
    parser = argparse.ArgumentParser(prog="mori tune", description="Find the best launches on the GPUs of this host.")
    whats = parser.add_subparsers(dest="what", metavar="what", required=True)
    for_ep = whats.add_parser(
        "ep",
        help="dispatch and combine of mori.ops",
        description="Time dispatch and combine with many launches on all GPUs at the same time, and store the best "
        f"ones in a table for this kind of GPU and number of ranks. {_USE}. Between two launches that are nearly as "
        "fast the smaller one is stored.",
    )
    _options(for_ep)
    args = parser.parse_args(argv)
    try:
        return _show(args) if args.show else _tune(args)
    except ValueError as err:
        for_ep.error(str(err))
    except (Unavailable, RemoteError, OSError) as err:
        print(f"mori tune: {err}", file=sys.stderr)
    return 1


def _options(parser: argparse.ArgumentParser) -> None:
    add, known = parser.add_argument, ",".join(map(str, TOKENS))
    add("--gpus", metavar="0,1", help="these GPUs, in this order (default all)")
    add("--hidden", type=int, default=7168, metavar="N", help="elements of a token (default 7168)")
    add("--experts", type=int, default=256, metavar="N", help="over all ranks (default 256)")
    add("--topk", type=int, default=8, metavar="N", help="experts that a token chooses (default 8)")
    add("--tokens", default=known, metavar="A,B", help=f"numbers of tokens of a rank (default {known})")
    add("--blocks", type=int, default=0, metavar="N", help="most blocks of a launch (default: any number)")
    add("--output", type=Path, metavar="FILE", help="default: the file that ops read")
    add("--show", action="store_true", help="measure nothing; show the table that ops would use here")
    add("--json", action="store_true", help="print one JSON object a line for each rule")
    add("--quick", action="store_true", help="few launches, one round: checks that it runs, no more")


@dataclass(frozen=True)
class Request:
    """What to tune: the layer, the numbers of tokens, the most blocks of a call (0: any number)."""

    hidden: int
    experts: int
    topk: int
    tokens: tuple[int, ...] = TOKENS
    most_blocks: int = 0
    quick: bool = False

    def check(self, ranks: int) -> None:
        """Raise ValueError for what cannot be tuned."""
        layer = {"hidden": self.hidden, "experts": self.experts, "topk": self.topk}
        check_sizes(ranks, "GPUs", tokens=min(self.tokens), **layer)
        if self.most_blocks < 0:
            raise ValueError(f"--blocks must not be negative, got {self.most_blocks}")

    def cases(self) -> list[tuple[Rule, GPUCase]]:
        """Return an empty rule and a case for each call and number of tokens."""
        more: dict[str, Any] = {"calls": 2, "rounds": 1} if self.quick else {}
        return [
            (Rule(name, self.hidden * size, n, 0, 0, 0.0, 0.0), replace(gpu_case(kind, n, dtype), **more))
            for n in self.tokens
            for name, kind, dtype, size in CALLS
        ]

    def launches(self, units: int) -> list[tuple[int, int]]:
        """Return blocks and warps, the smallest first, for a GPU with so many processors."""
        most = min(units, self.most_blocks or units)
        blocks = [n for n in BLOCKS if n <= most] or [1]
        if self.quick:
            return [(b, WARPS[0]) for b in blocks[:2]]
        return [(b, w) for b in blocks for w in WARPS]


def _tune(args: argparse.Namespace) -> int:
    try:
        tokens = tuple(sorted({int(word) for word in args.tokens.split(",")}))
    except ValueError:
        raise ValueError(f"--tokens {args.tokens}: give numbers with commas between them") from None
    request = Request(args.hidden, args.experts, args.topk, tokens, args.blocks, args.quick)
    request.check(1)
    chosen = gpus.choose(args.gpus)
    path, ranks, name = args.output or tables.known().path, len(chosen.numbers), chosen.names[0]
    request.check(ranks)
    if not args.json:
        how = f"{ranks} ranks", f"{request.hidden} elements", "medians of rounds of calls in a row"
        print("; ".join([*chosen.how(), *how]))
    rules: list[Rule] = []
    launches = request.launches({info.device: info.units for info in device.devices()}[chosen.numbers[0]])
    with bar(len(request.cases()) * len(launches), args.json, leave=False, desc="launches") as progress:
        for rule in tune(request, chosen, launches, lambda: progress.update(1)):
            rules.append(rule)
            if args.json:
                print(json.dumps({**asdict(rule), "device": name, "ranks": ranks}), flush=True)
    tables.store(path, name, ranks, rules)
    if not args.json:
        print(table([_row(asdict(rule)) for rule in rules]))
        print(f"\n{len(rules)} rules are in {path}; {_USE}")
    return 0


def tune(
    request: Request, chosen: gpus.GPUs, launches: list[tuple[int, int]], tick: Callable[[], object]
) -> Iterator[Rule]:
    """Yield the best launch of each call, and call tick after each launch.

    Raises Unavailable if a package is missing, or if sums or rows are wrong.
    """
    layer = request.hidden, request.experts, request.topk
    with gpu_ranks(chosen.numbers, *layer, max(request.tokens), request.quick) as group:
        graphs = not any(group.each("why_no_graphs"))
        for rule, case in request.cases():
            group.each("prepare", case if graphs else replace(case, mode="eager"))
            rule = replace(rule, before=round(slowest(group, "sample"), 2))
            if wrong := sum(group.each("wrong")):
                raise Unavailable(f"{case.name}: {wrong} rows or sums are wrong")
            yield _best(group, launches, tick, rule)


def _best(group: Group, launches: list[tuple[int, int]], tick: Callable[[], object], rule: Rule) -> Rule:
    best = replace(rule, us=float("inf"))
    for blocks, warps in launches:
        group.each("relaunch", blocks, warps)
        us = slowest(group, "sample")
        if us < best.us * _WORTH:
            best = replace(rule, blocks=blocks, warps=warps, us=round(us, 2))
        tick()
    return best


def _row(rule: dict[str, Any]) -> dict[str, Any]:
    row = {name: rule[name] for name in ("call", "row_bytes", "tokens", "blocks", "warps", "us")}
    return {**row, "by default": rule.get("before", "")}


def _show(args: argparse.Namespace) -> int:
    if args.output is not None:
        raise ValueError("--show is of the file that ops read, which MORI_EP_TUNING_CONFIG names; it takes no --output")
    known = tables.known()
    print(f"{known.path} ({'MORI_EP_TUNING_CONFIG names it' if known.named else 'the default path'}; {_USE})")
    if known.problem:
        print(f"no tables: {known.problem}")
        return 1
    present = {info.name for info in device.devices()}
    for one in known.tables:
        used = "a GPU that is here" if one["device"] in present else "no GPU that is here"
        print(f"\n{one['ranks']} x {one['device']}: {used}")
        print(table([_row(rule) for rule in one["rules"]], "  "))
    return 0
