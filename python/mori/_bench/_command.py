# SPDX-License-Identifier: MIT
"""The command line of `mori bench`."""

from __future__ import annotations

import argparse
import json
import sys
from types import ModuleType

from . import ep, io, plot, report, shmem
from .arguments import number
from .harness import Result, Suite, TransferFailed, Unavailable, WrongBytes, run
from .process import RemoteError

_SUITES: dict[str, tuple[ModuleType, str]] = {
    "io": (io, "transfers of mori.io between two processes"),
    "shmem": (shmem, "one-sided operations, atomics and barriers of mori.shmem"),
    "ep": (ep, "dispatch and combine of mori.ops"),
}


def main(argv: list[str]) -> int:
    """Return 0 if every case ran, whatever its figures; 1 if a case failed; 2 for bad arguments."""
    parser = argparse.ArgumentParser(
        prog="mori bench", description="Measure transfers beside the raw limits of this machine, in one run."
    )
    whats = parser.add_subparsers(dest="what", metavar="what", required=True)
    parsers = {}
    for name, (module, summary) in _SUITES.items():
        parsers[name] = whats.add_parser(name, help=summary, description=module.DESCRIPTION)
        _options(parsers[name], module)
        module.options(parsers[name])
    args = parser.parse_args(argv)
    try:
        try:
            suite = _SUITES[args.what][0].suite(args)
        except ValueError as err:
            parsers[args.what].error(str(err))
        return _run_all(suite, args)
    except (RemoteError, Unavailable, OSError) as err:
        print(f"mori bench: {err}", file=sys.stderr)
    return 1


def _options(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """Add the options of all suites."""
    known = "; with --device gpu: ".join(map(", ".join, module.names()))
    add = parser.add_argument
    add("--device", choices=["host", "gpu"], default="host", help="the kind of memory (default host)")
    add("--gpus", metavar="0,1", help="with --device gpu: these GPUs, in this order (default all)")
    add("--json", action="store_true", help="print only JSON objects, one per line")
    add("--cases", "--case", metavar="A,B", help=f"run only these cases: {known}")
    number(parser, "--repeats", 9, "samples per figure")
    plot.option(parser, "draw the figures (needs matplotlib)")
    add("--quick", action="store_true", help="little work per sample: only checks that everything runs")


def _run_all(suite: Suite, args: argparse.Namespace) -> int:
    results: list[Result] = []
    failures = 0
    machine = report.this_machine()
    if not args.json:
        print(report.heading(machine, args.repeats, suite.how, args.quick), flush=True)
    style = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
    with suite, report.bar(len(suite.cases), args.json, leave=False, bar_format=style) as progress:
        for case in suite.cases:
            progress.set_description(case.name)
            try:
                result = run(case, *suite.plan(case), args.repeats, progress.update)
            except (Unavailable, TransferFailed, WrongBytes) as err:
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
