# SPDX-License-Identifier: MIT
"""The command line of `mori tune`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mori import device

from .._bench import gpus
from .._bench.harness import Unavailable
from .._bench.process import RemoteError
from .._bench.report import bar
from ..cli._table import table
from . import ep, tables

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
    add, known = parser.add_argument, ",".join(map(str, ep.TOKENS))
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


def _request(args: argparse.Namespace) -> ep.Request:
    try:
        tokens = tuple(sorted({int(word) for word in args.tokens.split(",")}))
    except ValueError:
        raise ValueError(f"--tokens {args.tokens}: give numbers with commas between them") from None
    numbers = {"--tokens": tokens[0], "--hidden": args.hidden, "--experts": args.experts, "--topk": args.topk}
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if args.topk > args.experts:
        raise ValueError(f"--topk: a token cannot choose {args.topk} of {args.experts} experts")
    if args.blocks < 0:
        raise ValueError(f"--blocks must not be negative, got {args.blocks}")
    return ep.Request(args.hidden, args.experts, args.topk, tokens, args.blocks, args.quick)


def _tune(args: argparse.Namespace) -> int:
    request, chosen = _request(args), gpus.choose(args.gpus)
    path, ranks, name = args.output or tables.known().path, len(chosen.numbers), chosen.names[0]
    if not args.json:
        how = f"{ranks} ranks", f"{request.hidden} elements", "medians of rounds of calls in a row"
        print("; ".join([*chosen.how(), *how]))
    rules: list[tables.Rule] = []
    steps = len(request.cases()) * len(request.launches(ep.units(chosen)))
    with bar(steps, quiet=args.json, desc="launches") as progress:
        for rule in ep.tune(request, chosen, lambda: progress.update(1)):
            rules.append(rule)
            if args.json:
                print(json.dumps({**asdict(rule), "device": name, "ranks": ranks}), flush=True)
    tables.store(path, name, ranks, rules)
    if not args.json:
        print(table([_row(asdict(rule)) for rule in rules]))
        print(f"\n{len(rules)} rules are in {path}; {_USE}")
    return 0


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
