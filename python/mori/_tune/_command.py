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

from .._bench.gpu import chosen
from .._bench.process import RemoteError
from .._bench.progress import bar
from .._bench.suite import Unavailable
from ..cli._table import table
from . import ep, tables

_HOW_USED = "MORI_EP_LAUNCH_CONFIG_MODE=AUTO makes ops use it"


def main(argv: list[str]) -> int:
    """0: the table is written, or shown; 1: it could not be; 2: bad arguments."""
    parser = argparse.ArgumentParser(prog="mori tune", description="Find the best launches on the GPUs of this host.")
    whats = parser.add_subparsers(dest="what", metavar="what", required=True)
    for_ep = whats.add_parser("ep", help="dispatch and combine of mori.ops", description=_DESCRIPTION)
    _options(for_ep)
    args = parser.parse_args(argv)
    try:
        if args.show:
            return _show(args)
        return _tune(args)
    except ValueError as err:
        for_ep.error(str(err))
    except (Unavailable, RemoteError, OSError) as err:
        print(f"mori tune: {err}", file=sys.stderr)
    return 1


_DESCRIPTION = (
    "Time dispatch and combine with many launches on all GPUs at once, and keep the best ones in a table for this kind "
    f"of GPU and number of ranks. {_HOW_USED}. Between two launches that are nearly as fast the smaller one is kept."
)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="0,1", help="on these, in this order (default all)")
    parser.add_argument("--hidden", type=int, default=7168, metavar="N", help="elements of a token (default 7168)")
    parser.add_argument("--experts", type=int, default=256, metavar="N", help="over all ranks (default 256)")
    parser.add_argument("--topk", type=int, default=8, metavar="N", help="experts that a token chooses (default 8)")
    known = ",".join(map(str, ep.TOKENS))
    parser.add_argument("--tokens", default=known, metavar="A,B", help=f"numbers of tokens of a rank (default {known})")
    parser.add_argument(
        "--blocks", type=int, default=0, metavar="N", help="most blocks of a launch (default: any number)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: the file that ops read")
    parser.add_argument("--show", action="store_true", help="measure nothing; tell which table ops would use here")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each rule")
    parser.add_argument("--quick", action="store_true", help="few launches, one round: shows that it runs, no more")


def _wanted(args: argparse.Namespace) -> ep.Wanted:
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
    return ep.Wanted(args.hidden, args.experts, args.topk, tokens, args.blocks, args.quick)


def _tune(args: argparse.Namespace) -> int:
    wanted, gpus = _wanted(args), chosen.choose(args.gpus)
    path, ranks = args.output or tables.known().path, len(gpus.numbers)
    if not args.json:
        print(
            "; ".join(
                [*gpus.how(), f"{ranks} ranks", f"{wanted.hidden} elements", "medians of rounds of calls in a row"]
            )
        )
    units = {info.device: info.units for info in device.devices()}[gpus.numbers[0]]
    rules: list[tables.Rule] = []
    with bar(ep.steps(wanted, units), quiet=args.json, desc="launches") as progress:
        for rule in ep.tune(wanted, gpus, lambda: progress.update(1)):
            rules.append(rule)
            if args.json:
                print(json.dumps({**asdict(rule), "device": gpus.names[0], "ranks": ranks}), flush=True)
    tables.keep(path, gpus.names[0], ranks, rules)
    if not args.json:
        print(table([_row(asdict(rule)) for rule in rules]))
        print(f"\n{len(rules)} rules are in {path}; {_HOW_USED}")
    return 0


def _row(rule: dict[str, Any]) -> dict[str, Any]:
    row = {name: rule[name] for name in ("call", "row_bytes", "tokens", "blocks", "warps", "us")}
    return {**row, "as chosen before": rule.get("before", "")}


def _show(args: argparse.Namespace) -> int:
    if args.output is not None:
        raise ValueError("--show is of the file that ops read, which MORI_EP_TUNING_CONFIG names; it takes no --output")
    known = tables.known()
    told = "MORI_EP_TUNING_CONFIG names it" if known.named else "the usual place"
    print(f"{known.path} ({told}; {_HOW_USED})")
    if known.problem:
        print(f"no tables: {known.problem}")
        return 1
    here = {info.name for info in device.devices()}
    for one in known.tables:
        used = "a GPU that is here" if one["device"] in here else "no GPU that is here"
        print(f"\n{one['ranks']} x {one['device']}: {used}")
        print(table([_row(rule) for rule in one["rules"]], "  "))
    return 0
