# SPDX-License-Identifier: MIT
"""Runs a demo as several ranks: those of a launcher, or processes that it starts itself."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .. import _core, _errors, shmem
from .._bench.process import run_ranks

Report = dict[str, Any]


def launched() -> int:
    """Return how many ranks torchrun, mpirun, srun or Ray has started; 0 without a launcher."""
    facts = json.loads(_core.call("ShmemLaunched"))
    return 0 if facts is None else int(facts["size"])


def parse(parser: argparse.ArgumentParser, argv: list[str], *positive: str) -> argparse.Namespace | None:
    """Parse arguments, of which some must be positive. Without numpy, say so and return None."""
    args = parser.parse_args(argv)
    for name in positive:
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    if importlib.util.find_spec("numpy") is None:
        print(f"{parser.prog}: needs numpy (pip install numpy)", file=sys.stderr)
        return None
    return args


def run(
    program: list[str],
    args: argparse.Namespace,
    work: Callable[[], Report | None],
    text: Callable[[Report], str],
    right: Callable[[Report], bool],
) -> int:
    """Do the work of a rank, and print the report of rank 0. Without a launcher, start the ranks.

    Return 0 if all is right, 1 if not or if the run failed.
    """
    if not launched():
        return run_ranks(["demo", *program], args.pes)
    # The demos exchange numpy arrays, which need symmetric memory of the host.
    os.environ.setdefault("MORI_SHMEM_DEVICE", "host")
    try:
        shmem.shmem_init()
        report = work()
        if report is not None:
            print(json.dumps(report) if args.json else text(report), flush=True)
        shmem.shmem_finalize()
    except _errors.MoriError as err:
        print(f"mori demo {program[0]}: {err}", file=sys.stderr)
        return 1
    return 0 if report is None or right(report) else 1
