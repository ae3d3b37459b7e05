# SPDX-License-Identifier: MIT
"""`mori bench ep --device gpu`: dispatch and combine of mori.ops between GPUs, each of a process of its own."""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cases import MIB, Case, pick
from ..group import Group
from ..measure import Plan
from ..suite import Unavailable
from . import chosen, ep_cases
from .cases import L2_BYTES
from .ep_cases import EPCase

if TYPE_CHECKING:
    from ..ep_rows import Sizes

_PACKAGES = ("ml_dtypes", "torch")
_POOL_BYTES = 4 * L2_BYTES
_HIDDEN_QUICK = 512


def package_of_rows() -> str:
    """What makes arrays of bfloat16 and float8 here. Raises Unavailable if nothing does."""
    package = next((name for name in _PACKAGES if importlib.util.find_spec(name) is not None), None)
    if importlib.util.find_spec("numpy") is None or package is None:
        raise Unavailable(
            f"calls of mori.ops on GPUs are measured with numpy, and {' or '.join(_PACKAGES)}: install them"
        )
    return package


def ranks_of(gpus: list[int], sizes: Sizes, tokens: int, package: str, quick: bool, hosts: int = 1) -> Group:
    """A rank on each GPU, for so many tokens at most; sizes.tokens are those that take turns."""
    from .ep_rank import GPUEPRank

    # An op takes rows received twice, combined tokens, and for each row its choices, scales and flags.
    received, row = sizes.ranks * tokens, 2 * sizes.hidden
    beside = 32 * sizes.topk + sizes.hidden // 8 + 256
    heap = 2 * received * row + tokens * row + received * beside + 64 * MIB
    if hosts > 1:  # records on their way out and in, and rows on their way back
        peers = hosts - 1
        heap += 2 * peers * (tokens * (row + beside) + 4 * MIB) + tokens * min(sizes.topk, sizes.ranks) * (row + beside)
    factory = f"{GPUEPRank.__module__}:{GPUEPRank.__name__}"
    return Group(factory, sizes.ranks, heap, gpus, sizes, tokens, package, MIB if quick else 2 * L2_BYTES, hosts)


class GPUEP:
    """See suite.Suite. Raises ValueError for cases, sizes and GPUs that cannot be, Unavailable without any GPU."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases: list[EPCase] = ep_cases.full() if args.full or args.cases else ep_cases.usual()
        cases = [case for case in cases if args.tokens is None or args.cases or case.tokens == args.tokens]
        if args.cases:
            known = {case.name: case for case in (*ep_cases.usual(), *cases)}
            cases = pick(list(known.values()), args.cases)
        elif not cases:
            raise ValueError(f"--tokens {args.tokens}: no case has so many; there are {ep_cases.FULL_TOKENS}")
        self._gpus, self._quick = chosen.choose(args.gpus), args.quick
        self._ranks = len(self._gpus.numbers)
        self._hidden = min(args.hidden, _HIDDEN_QUICK) if args.quick else args.hidden
        self._experts, self._topk, self._hosts = args.experts or 256, args.topk, args.hosts
        self._check()
        self.cases: list[EPCase] = [case.quick() for case in cases] if args.quick else cases
        self._by_name = bool(args.cases)
        self._nccl = not args.no_nccl
        self._why_no_nccl = "left out by --no-nccl"
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # where the ranks of NCCL meet
        self.how = [
            *self._gpus.how(),
            f"{self._ranks} ranks, {self._hidden} elements, top {self._topk} of {self._experts} experts",
            "times by events, of calls in a row with other tokens each",
            "memcpy: all GPUs copy at once what goes over the wire; ratio: times its time"
            if self._hosts == 1
            else f"the ranks are told to be on {self._hosts} hosts; NCCL is told to use sockets; ratio: times its time",
            "rows and sums are compared",
        ]
        self.facts: dict[str, object] = {
            "ranks": self._ranks,
            "hidden": self._hidden,
            "experts": self._experts,
            "topk": self._topk,
            "hosts": self._hosts,
            "quick": args.quick,
        }

    def _check(self) -> None:
        for name, value in (("--hidden", self._hidden), ("--experts", self._experts), ("--topk", self._topk)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self._experts % self._ranks:
            raise ValueError(f"--experts {self._experts} do not spread evenly over {self._ranks} GPUs")
        if self._hosts < 1 or self._ranks % self._hosts:
            raise ValueError(f"--hosts {self._hosts}: {self._ranks} ranks do not spread evenly over them")
        if self._topk > self._experts:
            raise ValueError(f"--topk: a token cannot choose {self._topk} of {self._experts} experts")

    def __enter__(self) -> GPUEP:
        package = package_of_rows()
        from ..ep_rows import Sizes

        tokens = max(case.tokens for case in self.cases)
        pool = max(2 * tokens, 64 if self._quick else _POOL_BYTES // self._hidden)
        sizes = Sizes(pool, self._hidden, self._experts, self._topk, self._ranks)
        self._group = ranks_of(list(self._gpus.numbers), sizes, tokens, package, self._quick, self._hosts)
        try:
            self._prepare()
        except BaseException as err:
            self._group.__exit__(type(err), err, None)
            raise
        return self

    def _prepare(self) -> None:
        """Find out what there is besides mori, and leave out what cannot be measured."""
        why = next((reason for reason in self._group.each("why_no_graphs") if reason), "")
        if why and not self._by_name:
            self.cases = [case for case in self.cases if case.mode != "graph"] or [
                replace(case, name=f"{case.name}-eager", mode="eager") for case in self.cases
            ]
            print(f"mori bench: cases with CUDA graphs are left out: {why}", file=sys.stderr)
        self._why_no_graphs = why
        if self._nccl:
            self._folder = tempfile.TemporaryDirectory(prefix="mori-bench-")
            answers = self._group.each("open_nccl", str(Path(self._folder.name) / "store"))
            self._why_no_nccl = next((answer for answer in answers if answer), "")
        self._nccl = not self._why_no_nccl
        if not self._nccl:
            print(f"mori bench: no NCCL to compare with: {self._why_no_nccl}", file=sys.stderr)

    def __exit__(self, *failure: Any) -> None:
        self._group.__exit__(*failure)
        if self._folder is not None:
            self._folder.cleanup()

    def plan(self, case: Case) -> tuple[str, Plan]:
        assert isinstance(case, EPCase)
        if case.mode == "graph" and self._why_no_graphs:
            raise Unavailable(f"CUDA graphs: {self._why_no_graphs}")
        group = self._group
        wires: list[int] = group.each("prepare", case)
        wire = max(wires)
        hosts: list[float] = []

        def median(method: str) -> float:
            """The slowest rank of each round, the median of the rounds."""
            told: list[list[float]] = group.each(method)
            middle: float = statistics.median(max(at_once) for at_once in zip(*told, strict=True))
            return middle

        def ours() -> float:
            us = median("sample")
            hosts.append(max(group.each("host_us")))
            return us

        def wipe() -> None:
            group.each("wipe")

        raws = {"memcpy": lambda: median("copies")} if wire and self._hosts == 1 else {}
        if self._nccl and case.kind != "both":
            raws["NCCL all_to_all"] = lambda: median("nccl")
        extra: dict[str, object] = {
            "tokens": case.tokens,
            "dtype": case.dtype,
            "blocks": case.blocks or "auto",
            "mode": case.mode,
            "routing": "skewed" if case.skewed else "uniform",
            "bytes": wire,
            **self._gpus.facts(self._ranks),
        }

        def finish(us: float, raw_samples: dict[str, list[float]]) -> dict[str, object]:
            medians = {name: statistics.median(some) for name, some in raw_samples.items()}
            return {
                "us": round(us, 2),
                "gbps": round(wire / us / 1e3, 1) if us else None,
                "yardstick": medians.get("memcpy"),
                "nccl_us": medians.get("NCCL all_to_all"),
                "no_nccl": self._why_no_nccl or None,
                "host_us": round(statistics.median(hosts), 2),
            }

        plan = Plan(
            ours,
            raws,
            prepare=wipe,
            verify=lambda: sum(group.each("wrong")),
            best=min,
            primary=next(iter(raws), None),
            extra=extra,
            finish=finish,
        )
        return group.one(0, "paths")[-1], plan
