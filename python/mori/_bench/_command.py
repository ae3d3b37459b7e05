# SPDX-License-Identifier: MIT
"""The command line of `mori bench`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path as FilePath
from types import ModuleType

from . import ep_suite, io_suite, plot, report, shmem_suite
from .machine import this_machine
from .measure import Result, WrongBytes, run
from .moves import TransferFailed
from .process import RemoteError
from .progress import Bar, bar
from .rig import PathUnavailable
from .suite import Suite, Unavailable

_SUITES: dict[str, tuple[ModuleType, Callable[[argparse.Namespace], Suite]]] = {
    "io": (io_suite, io_suite.suite),
    "shmem": (shmem_suite, shmem_suite.suite),
    "ep": (ep_suite, ep_suite.suite),
}
_SUMMARIES = {
    "io": "transfers of mori.io between two processes",
    "shmem": "one-sided operations, atomics and barriers of mori.shmem",
    "ep": "dispatch and combine of mori.ops",
}


def main(argv: list[str]) -> int:
    """0: every case ran, whatever the figures; 1: a case could not run or moved wrong bytes; 2: bad arguments."""
    parser, parsers = _parsers()
    args = parser.parse_args(argv)
    parser = parsers[args.what]
    try:
        suite = _SUITES[args.what][1](args)
    except ValueError as err:
        parser.error(str(err))
    except Unavailable as err:
        print(f"mori bench: {err}", file=sys.stderr)
        return 1
    if args.plot and (trouble := plot.trouble(args.plot)):
        parser.error(trouble)
    try:
        return _run_all(suite, args)
    except (RemoteError, Unavailable, OSError) as err:
        print(f"mori bench: {err}", file=sys.stderr)
        return 1


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog="mori bench", description="Measure transfers beside the raw limits of this machine, in one run."
    )
    whats = parser.add_subparsers(dest="what", metavar="what", required=True)
    parsers = {}
    for name, (module, _) in _SUITES.items():
        parsers[name] = whats.add_parser(name, help=_SUMMARIES[name], description=module.DESCRIPTION)
        _options(parsers[name], module)
        module.options(parsers[name])
    return parser, parsers


def _options(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """What all suites have, and those that have cases on GPUs."""
    known = ", ".join(module.NAMES)
    if gpu_names := getattr(module, "GPU_NAMES", None):
        parser.add_argument("--device", choices=["host", "gpu"], default="host", help="whose memory (default host)")
        parser.add_argument("--gpus", metavar="0,1", help="with --device gpu: these, in this order (default all)")
        known += f"; with --device gpu: {', '.join(gpu_names)}"
    parser.add_argument("--json", action="store_true", help="print one JSON object a line and nothing else")
    parser.add_argument("--cases", "--case", metavar="A,B", help=f"only these, of: {known}")
    parser.add_argument("--repeats", type=_positive, default=9, metavar="N", help="samples of each figure (default 9)")
    parser.add_argument("--plot", type=FilePath, metavar="FILE", help="draw the figures (needs matplotlib)")
    parser.add_argument("--quick", action="store_true", help="little work in each sample: shows that all runs, no more")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _bar(cases: int, quiet: bool) -> Bar:
    return bar(cases, quiet=quiet, bar_format="{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]")


def _run_all(suite: Suite, args: argparse.Namespace) -> int:
    results: list[Result] = []
    failures = 0
    machine = this_machine()
    if not args.json:
        print(report.heading(machine, args.repeats, suite.how, args.quick), flush=True)
    with suite, _bar(len(suite.cases), args.json) as progress:
        for case in suite.cases:
            progress.set_description(case.name)
            try:
                path, plan = suite.plan(case)
                result = run(case, path, plan, args.repeats, progress.update)
            except (PathUnavailable, Unavailable, TransferFailed, WrongBytes) as err:
                failures += 1
                print(f"mori bench: {case.name}: {err}", file=sys.stderr)
                continue
            result.extra.update(suite.facts)
            results.append(result)
            if args.json:
                print(json.dumps(result.as_dict()), flush=True)
    if not args.json and results:
        print(report.table(results))
    if args.plot and results:
        plot.draw(results, args.what, machine, args.plot)
    return 1 if failures else 0
