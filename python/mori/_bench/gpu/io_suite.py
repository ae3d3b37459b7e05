# SPDX-License-Identifier: MIT
"""`mori bench io --device gpu`: blocks between a GPU and a GPU or host memory of another process."""

from __future__ import annotations

import argparse
from typing import Any

from ..cases import Case, pick
from ..measure import Plan
from . import chosen
from .cases import IO_CASES, GPUCase
from .moves import PLANS
from .rig import GPURig

NAMES = [case.name for case in IO_CASES]


class GPUIO:
    """See suite.Suite. Raises ValueError for cases and GPUs that there are not, Unavailable without any GPU."""

    def __init__(self, args: argparse.Namespace) -> None:
        if args.path is not None:
            raise ValueError("--path is of host memory; with --device gpu each case has its path")
        wanted = pick(IO_CASES, args.cases)
        self.cases: list[GPUCase] = [case.quick() for case in wanted] if args.quick else wanted
        self._gpus = chosen.choose(args.gpus)
        self.how = [
            *self._gpus.how(),
            "transfers by the clock of their caller, memcpy by events",
            f"blocks of {self.cases[0].pool >> 20} MiB and more take turns" if not args.quick else "few blocks",
            "every transferred byte is compared",
        ]
        self.facts: dict[str, object] = {"quick": args.quick}

    def __enter__(self) -> GPUIO:
        self._rig = GPURig(self._gpus)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._rig.__exit__(*failure)

    def plan(self, case: Case) -> tuple[str, Plan]:
        assert isinstance(case, GPUCase)
        self._rig.use(case)
        plan = PLANS[case.kind](self._rig, case)
        plan.extra.update(self._gpus.facts(2 if case.there == "gpu" else 1), link=self._rig.link)
        return self._rig.path, plan
