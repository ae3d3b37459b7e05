# SPDX-License-Identifier: MIT
"""Runs a demo as several ranks: those of a launcher, or processes that it starts itself."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _core, _errors, shmem
from .._bench.arguments import number
from .._bench.process import run_ranks
from .._bench.report import verdict
from ..cli import _table


@dataclass(frozen=True)
class Outcome:
    """What rank 0 prints: a report as JSON, or its rows and the verdict that it is right or wrong."""

    report: dict[str, Any]
    rows: list[dict[str, Any]]
    right: bool
    good: str
    bad: str


def launched() -> dict[str, Any] | None:
    """Return this process's rank and the number of ranks, from torchrun, mpirun, srun or Ray."""
    launch: dict[str, Any] | None = json.loads(_core.call("ShmemLaunched"))
    return launch


def parser(name: str, description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"mori demo {name}", description=description)
    number(made, "--pes", 4, "processes to start")
    return made


def run(
    parser: argparse.ArgumentParser, argv: list[str], unit: str, prepare: Callable[[argparse.Namespace, int], Any]
) -> int:
    """Run a rank's work, which `prepare` returns for the arguments and the number of ranks.

    Without a launcher, start the ranks. Return 0 if all is right, 1 if not or if the run failed.
    """
    args = parser.parse_args(argv)
    if importlib.util.find_spec("numpy") is None:
        print(f"{parser.prog}: needs numpy (pip install numpy)", file=sys.stderr)
        return 1
    launch = launched()
    try:
        work: Callable[[], Outcome | None] = prepare(args, launch["size"] if launch else args.pes)
    except ValueError as err:
        parser.error(str(err))
    if launch is None:
        return run_ranks([*parser.prog.split()[1:], *argv], args.pes)
    # The demos exchange numpy arrays, which need symmetric memory of the host.
    os.environ.setdefault("MORI_SHMEM_DEVICE", "host")
    try:
        shmem.shmem_init()
        outcome = work()
        if outcome is not None:
            text = f"\n{_table.table(outcome.rows)}\n\n{verdict(outcome.right, outcome.good, outcome.bad)}"
            print(json.dumps(outcome.report) if args.json else text, flush=True)
        shmem.shmem_finalize()
    except _errors.MoriError as err:
        print(f"{parser.prog}: {unit} {launch['rank']}: {err}", file=sys.stderr)
        return 1
    return 0 if outcome is None or outcome.right else 1
