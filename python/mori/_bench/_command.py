# SPDX-License-Identifier: MIT
"""The command line of `mori bench`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path as FilePath

from . import moves, plot, report, watches
from .cases import CASES, Case, choose
from .machine import this_machine
from .measure import Result, WrongBytes, run
from .moves import TransferFailed
from .process import RemoteError
from .progress import Bar, bar
from .rig import Effort, PathUnavailable, Rig

_PLANS = {
    "stream": moves.stream,
    "latency": moves.latency,
    "submit": moves.submit,
    "poll": watches.poll,
    "idle": watches.idle,
    "leak": watches.leak,
}


def main(argv: list[str]) -> int:
    """0: every case ran, whatever the figures; 1: a case could not run or moved wrong bytes; 2: bad arguments."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        cases = choose(args.cases, args.path)
    except ValueError as err:
        parser.error(str(err))
    if args.plot and (trouble := plot.trouble(args.plot)):
        parser.error(trouble)
    try:
        return _run_all(cases, args)
    except (RemoteError, OSError) as err:
        print(f"mori bench: {err}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mori bench",
        description="Measure transfers between two processes and, in turns with them, the raw limits of this machine: "
        "a plain process_vm_readv loop and a plain TCP stream. Every byte that was moved is verified.",
    )
    parser.add_argument("what", choices=["io"], help="what to measure")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line and nothing else")
    parser.add_argument("--cases", metavar="A,B", help=f"only these, of: {', '.join(case.name for case in CASES)}")
    parser.add_argument("--repeats", type=_positive, default=9, metavar="N", help="samples of each figure (default 9)")
    parser.add_argument("--path", choices=["shm", "tcp"], help="only this path; path-free cases run on it")
    parser.add_argument(
        "--no-notifications",
        dest="notifications",
        action="store_false",
        help="engines as vLLM and SGLang configure them: the target is not told of transfers (default: it is)",
    )
    parser.add_argument("--plot", type=FilePath, metavar="FILE", help="draw the figures (needs matplotlib)")
    parser.add_argument("--quick", action="store_true", help="little work in each sample: shows that all runs, no more")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _bar(cases: int, quiet: bool) -> Bar:
    return bar(cases, quiet=quiet, bar_format="{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]")


def _run_all(cases: list[Case], args: argparse.Namespace) -> int:
    results: list[Result] = []
    failures = 0
    machine = this_machine()
    if not args.json:
        print(report.heading(machine, args))
    with Rig(Effort.of(args.quick), notifications=args.notifications) as rig, _bar(len(cases), args.json) as progress:
        for case in cases:
            progress.set_description(case.name)
            try:
                path = case.path or args.path or "shm"
                rig.use(path)
                result = run(case, path, _PLANS[case.kind](rig, case), args.repeats, progress.update)
            except (PathUnavailable, TransferFailed, WrongBytes) as err:
                failures += 1
                print(f"mori bench: {case.name}: {err}", file=sys.stderr)
                continue
            result.extra["notifications"] = args.notifications
            results.append(result)
            if args.json:
                print(json.dumps(result.as_dict()), flush=True)
    if not args.json and results:
        print(report.table(results))
    if args.plot and results:
        plot.draw(results, machine, args.plot)
    return 1 if failures else 0
