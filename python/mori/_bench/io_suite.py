# SPDX-License-Identifier: MIT
"""`mori bench io`: transfers of mori.io between two processes."""

from __future__ import annotations

import argparse
from typing import Any

from . import moves, watches
from .cases import CASES, Case, choose
from .gpu import io_suite as gpu_suite
from .measure import Plan
from .rig import Effort, Rig
from .suite import Suite

NAMES = [case.name for case in CASES]
GPU_NAMES = gpu_suite.NAMES
DESCRIPTION = (
    "Measure transfers between two processes and, in turns with them, the raw limits of this machine: "
    "a plain process_vm_readv loop and a plain TCP stream; on RDMA devices perftest's ib_write_bw and its sisters, "
    "where they are installed; on GPUs the driver's memcpy. Every byte that was moved is "
    "verified."
)

_PLANS = {
    "stream": moves.stream,
    "latency": moves.latency,
    "submit": moves.submit,
    "poll": watches.poll,
    "idle": watches.idle,
    "leak": watches.leak,
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path",
        choices=["shm", "verbs", "tcp"],
        help="only this path; path-free cases run on it (default shm and tcp)",
    )
    parser.add_argument(
        "--no-notifications",
        dest="notifications",
        action="store_false",
        help="engines as vLLM and SGLang configure them: the target is not told of transfers (default: it is)",
    )


def suite(args: argparse.Namespace) -> Suite:
    """The cases of the memory that was asked for. Raises ValueError and Unavailable."""
    return gpu_suite.GPUIO(args) if args.device == "gpu" else IO(args)


class IO:
    """See suite.Suite. Raises ValueError for cases that there are not."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.cases: list[Case] = choose(args.cases, args.path)
        self.how = ["raw limits take turns with the transfers", "every transferred byte is compared"]
        if not args.notifications:
            self.how.append("without notifications")
        self.facts: dict[str, object] = {"notifications": args.notifications}
        self._path, self._args = args.path, args

    def __enter__(self) -> IO:
        self._rig = Rig(Effort.of(self._args.quick), notifications=self._args.notifications)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._rig.__exit__(*failure)

    def plan(self, case: Case) -> tuple[str, Plan]:
        path = case.path or self._path or "shm"
        self._rig.use(path)
        return path, _PLANS[case.kind](self._rig, case)
