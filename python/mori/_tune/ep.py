# SPDX-License-Identifier: MIT
"""`mori tune ep`: tries launches of dispatch and combine on the GPUs of this host, on all ranks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mori import device

from .._bench import gpus
from .._bench.arguments import number, numbers
from .._bench.ep import EPCase, check_layer, gpu_case, layer_options, span_us, start_ranks
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
    add, known = for_ep.add_argument, ",".join(map(str, TOKENS))
    add("--gpus", metavar="0,1", help="these GPUs, in this order (default all)")
    layer_options(for_ep, "256")
    add("--tokens", default=known, metavar="A,B", help=f"numbers of tokens per rank (default {known})")
    number(for_ep, "--blocks", 0, "limit of blocks per launch (default: none)", least=0)
    add("--output", type=Path, metavar="FILE", help="default: the file that ops read")
    add("--show", action="store_true", help="measure nothing; show the table that ops would use here")
    add("--json", action="store_true", help="print one JSON object per line and rule")
    add("--quick", action="store_true", help="few launches, one round: only checks that it runs")
    args = parser.parse_args(argv)
    try:
        return _show(args) if args.show else _tune(args)
    except ValueError as err:
        for_ep.error(str(err))
    except (Unavailable, RemoteError, OSError) as err:
        print(f"mori tune: {err}", file=sys.stderr)
    return 1


def cases(tokens: Iterable[int], hidden: int, quick: bool) -> list[tuple[Rule, EPCase]]:
    """Return an empty rule and a case for each call and number of tokens."""
    more: dict[str, Any] = {"calls": 2, "times": 1} if quick else {}
    return [
        (Rule(name, hidden * size, n, 0, 0, 0.0, 0.0), replace(gpu_case(kind, n, dtype), **more))
        for n in tokens
        for name, kind, dtype, size in CALLS
    ]


def launches(units: int, most_blocks: int = 0, quick: bool = False) -> list[tuple[int, int]]:
    """Return blocks and warps, the smallest first, for a GPU with so many processors."""
    most = min(units, most_blocks or units)
    blocks = [n for n in BLOCKS if n <= most] or [1]
    return [(b, w) for b in (blocks[:2] if quick else blocks) for w in (WARPS[:1] if quick else WARPS)]


def _tune(args: argparse.Namespace) -> int:
    tokens = sorted(set(numbers("--tokens", args.tokens)))
    layer = {name: getattr(args, name) for name in ("hidden", "experts", "topk")}
    if tokens[0] < 1:
        raise ValueError(f"--tokens must be at least 1, got {tokens[0]}")
    check_layer(1, "GPUs", args.experts, args.topk)
    chosen = gpus.choose(args.gpus)
    path, ranks, name = args.output or Path(tables.known()["path"]), len(chosen.numbers), chosen.names[0]
    check_layer(ranks, "GPUs", args.experts, args.topk)
    if not args.json:
        how = f"{ranks} ranks", f"{args.hidden} elements", "medians of rounds of calls in a row"
        print("; ".join([*chosen.how(), *how]))
    rules: list[Rule] = []
    units = {info.device: info.units for info in device.devices()}[chosen.numbers[0]]
    every, ways = cases(tokens, args.hidden, args.quick), launches(units, args.blocks, args.quick)
    with (
        start_ranks(ranks, **layer, tokens=tokens[-1], numbers=chosen.numbers, quick=args.quick) as group,
        bar(len(every) * len(ways), args.json, leave=False, desc="launches") as progress,
    ):
        for rule, case in every:
            rules.append(best(group, rule, case, ways, progress.update))
            if args.json:
                print(json.dumps({**asdict(rules[-1]), "device": name, "ranks": ranks}), flush=True)
    tables.store(path, name, ranks, rules)
    if not args.json:
        print(table([_row(asdict(rule)) for rule in rules]))
        print(f"\n{len(rules)} rules are in {path}; {_USE}")
    return 0


def best(
    group: Group, rule: Rule, case: EPCase, launches: list[tuple[int, int]], tick: Callable[[], object]
) -> Rule:
    """Return the rule with the best launch of a call, and call tick after each launch.

    Raises Unavailable if sums or rows are wrong.
    """
    eager = any(group.each("why_no_graphs"))
    group.each("prepare", replace(case, mode="eager") if eager else case)
    found = replace(rule, before=round(span_us(group, "sample") / case.calls, 2), us=float("inf"))
    if wrong := sum(group.each("wrong")):
        raise Unavailable(f"{case.name}: {wrong} rows or sums are wrong")
    for blocks, warps in launches:
        group.each("relaunch", blocks, warps)
        us = span_us(group, "sample") / case.calls
        if us < found.us * _WORTH:
            found = replace(found, blocks=blocks, warps=warps, us=round(us, 2))
        tick()
    return found


def _row(rule: dict[str, Any]) -> dict[str, Any]:
    row = {name: rule[name] for name in ("call", "row_bytes", "tokens", "blocks", "warps", "us")}
    return {**row, "by default": rule.get("before", "")}


def _show(args: argparse.Namespace) -> int:
    if args.output is not None:
        raise ValueError("--show is of the file that ops read, which MORI_EP_TUNING_CONFIG names; it takes no --output")
    known = tables.known()
    print(f"{known['path']} ({'MORI_EP_TUNING_CONFIG names it' if known['named'] else 'the default path'}; {_USE})")
    if known["problem"]:
        print(f"no tables: {known['problem']}")
        return 1
    present = {info.name for info in device.devices()}
    for one in known["tables"] or []:
        used = "a GPU that is here" if one["device"] in present else "no GPU that is here"
        print(f"\n{one['ranks']} x {one['device']}: {used}")
        print(table([_row(rule) for rule in one["rules"]], "  "))
    return 0
