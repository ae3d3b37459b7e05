# SPDX-License-Identifier: MIT
"""`mori bench ep`: dispatch and combine of mori.ops between processes of this host."""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from . import gpus
from .arguments import number
from .gpus import L2_BYTES
from .harness import MIB, Case, Plan, Point, Suite, Target, Turn, Unavailable, at_least, pick
from .memory import available_bytes
from .process import Group

DESCRIPTION = (
    "Measure dispatch and combine of mori.ops between processes of this host. memcpy of as many bytes by as many "
    "processes at the same time takes turns with them. The bytes to move are those of the rows that the tokens "
    "make: one for each rank with an expert that the token chose. Every row and every sum is verified. On GPUs each "
    "rank has a GPU; all GPUs copy at the same time what crosses the wire, and NCCL's all_to_all moves the same rows."
)

FEW = 128


# Bytes of an element, and the packages that make arrays of it, in order of preference.
_DTYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "bfloat16": (2, ("ml_dtypes", "torch")),
    "float32": (4, ("numpy",)),
    "float8_e4m3fn": (1, ("ml_dtypes", "torch")),
}

# The cases on GPUs.
FULL_TOKENS = (1, 8, 32, 128, 512, 1024, 2048, 4096, 8192)
BUDGETS = (8, 16, 24, 32, 64, 128)
SHORT = {"float8_e4m3fn": "fp8", "bfloat16": "bf16"}
_WIRE = Target("ratio", "<=", round(1 / 0.9, 2))  # nine tenths of the memcpy's speed
_MANY = 1024
_POOL_BYTES = 4 * L2_BYTES


@dataclass(frozen=True)
class EPCase(Case):
    """A call with `tokens` tokens of each rank (0: as many as asked for).

    `blocks` and `warps` are those of the launch (None: default). A round has `calls` calls of
    different tokens. `mode` is graph or eager on GPUs.
    """

    tokens: int = 0
    dtype: str = "bfloat16"
    blocks: int | None = None
    warps: int | None = None
    mode: str = "host"
    skewed: bool = False
    calls: int = 1

    @property
    def rounds(self) -> int:
        """How many rounds a sample has."""
        return int(self.times)

    @property
    def point(self) -> Point:
        if self.skewed or self.mode == "host":
            return Point()
        line = f"{self.kind} {SHORT[self.dtype]}, {self.mode}"
        if self.blocks:
            return Point("blocks of the launch", self.blocks, f"{line}, {self.tokens} tokens")
        return Point("tokens of a rank", self.tokens, line)

    def quick(self) -> EPCase:
        few: EPCase = super().quick()
        return few if self.mode == "host" else replace(few, tokens=min(self.tokens, 16), calls=2)


_GOOD = at_least(0.6)
CASES = (
    EPCase("dispatch", "dispatch", "GB/s", target=_GOOD),
    EPCase("combine", "combine", "GB/s", target=_GOOD),
    EPCase("combine-in-place", "combine-in-place", "GB/s", target=_GOOD),
    EPCase(f"dispatch-{FEW}", "dispatch", "us", tokens=FEW, times=50),
    EPCase(f"combine-{FEW}", "combine", "us", tokens=FEW, times=50),
)


def gpu_case(kind: str, tokens: int, dtype: str = "bfloat16", **more: Any) -> EPCase:
    """Return a case named after its parameters: dispatch-4096-fp8-24blocks-skewed-eager."""
    target, calls = (_WIRE, 8) if tokens >= _MANY else (None, 32)
    facts = {"target": target, "tokens": tokens, "dtype": dtype, "mode": "graph", "calls": calls, "times": 3, **more}
    case = EPCase("", kind, "us", **facts)
    words = [kind, str(tokens), SHORT[dtype], f"{case.blocks}blocks" if case.blocks else ""]
    words += ["skewed" if case.skewed else "", "eager" if case.mode == "eager" else ""]
    return replace(case, name="-".join(filter(None, words)))


_KINDS = (
    ("dispatch", "float8_e4m3fn"),
    ("dispatch", "bfloat16"),
    ("combine", "bfloat16"),
    ("combine-in-place", "bfloat16"),
)


def _shapes(tokens: Sequence[int], **more: Any) -> Iterator[EPCase]:
    yield from (gpu_case(kind, n, dtype, **more) for n in tokens for kind, dtype in _KINDS)


def full() -> list[EPCase]:
    """Return all cases on GPUs."""
    modes = ("graph", "eager")
    cases = [case for mode in modes for case in _shapes(FULL_TOKENS, mode=mode)]
    cases += [case for mode in modes for case in _shapes((128, 4096), mode=mode, skewed=True)]
    cases += [case for blocks in BUDGETS for case in _shapes((128, 4096), blocks=blocks)]
    return cases + [gpu_case("both", n, mode=mode) for mode in modes for n in FULL_TOKENS]


def usual() -> list[EPCase]:
    """Return the cases that run without --full."""
    return [
        *_shapes((1, 128, 1024, 4096, 8192)),
        *(case for blocks in (8, 24, 64, 128) for case in _shapes((4096,), blocks=blocks)),
        *_shapes((1, 128, 4096), mode="eager"),
        *_shapes((4096,), skewed=True),
        *(gpu_case("both", n) for n in (1, 128)),
    ]


def names() -> list[list[str]]:
    """Return the names of the cases on host memory, and some of those on GPUs."""
    some = ["dispatch-4096-fp8", "combine-128-bf16-eager", "dispatch-4096-bf16-24blocks", "and so on: see --full"]
    return [[case.name for case in CASES], some]


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    number(parser, "--ranks", 4, "processes")
    number(parser, "--tokens", None, "tokens per rank (default 4096; on GPUs several)")
    layer_options(parser, "32, on GPUs 256")
    add("--dtype", choices=list(_DTYPES), default="bfloat16", help="type of the rows (default bfloat16)")
    add("--full", action="store_true", help="on GPUs: all numbers of tokens and all block budgets")
    number(parser, "--hosts", 1, "on GPUs: act as if on N hosts")
    add("--no-nccl", action="store_true", help="on GPUs: compare with memcpy only")


def layer_options(parser: argparse.ArgumentParser, experts: str) -> None:
    """Add the sizes of a layer. `experts` says how many there are by default."""
    number(parser, "--hidden", 7168, "elements per token")
    number(parser, "--experts", int(experts) if experts.isdigit() else None, f"experts in total (default {experts})")
    number(parser, "--topk", 8, "experts per token")


def suite(args: argparse.Namespace) -> Suite:
    """Return the selected cases. Raises ValueError for bad arguments, Unavailable without a GPU."""
    return GPUEP(args) if args.device == "gpu" else EP(args)


def check_layer(ranks: int, of: str, experts: int, topk: int) -> None:
    """Raise ValueError for a layer that cannot be; `of` names the ranks."""
    if experts % ranks:
        raise ValueError(f"--experts {experts} do not spread evenly over {ranks} {of}")
    if topk > experts:
        raise ValueError(f"--topk: a token cannot choose {topk} of {experts} experts")


class EP(Suite):
    """Dispatch and combine on host memory."""

    def __init__(self, args: argparse.Namespace) -> None:
        tokens, experts = args.tokens or 4096, args.experts or 32
        check_layer(args.ranks, "ranks", experts, args.topk)
        dtype, _, lacking = _elements(args.dtype)
        size = f"{tokens} x {args.hidden} {dtype}, top {args.topk} of {experts} experts, {args.ranks} ranks"
        self._layer = {"hidden": args.hidden, "experts": experts, "topk": args.topk}
        self._most, self._dtype, self._ranks = max(tokens, FEW), dtype, args.ranks
        facts = {"ranks": args.ranks, **self._layer, "dtype": dtype}
        cases = [replace(case, tokens=case.tokens or tokens, dtype=dtype) for case in pick(CASES, args.cases)]
        how = [size, "memcpy takes turns", "rows and sums are compared", *lacking]
        super().__init__(cases, how, facts, args.quick)

    def start(self) -> None:
        self._group = self.enter_context(start_ranks(self._ranks, **self._layer, tokens=self._most, dtype=self._dtype))

    def plan(self, case: EPCase) -> tuple[str, Plan]:
        group = self._group
        rows = sum(sent for sent, _ in group.each("prepare", case))
        moved = rows * self._layer["hidden"] * _DTYPES[case.dtype][0]

        def turn(method: str) -> float:
            us = span_us(group, method)
            return moved / us / 1e3 if case.unit == "GB/s" else us

        raws: dict[str, Turn] = {"memcpy": partial(turn, "copies")}
        extra: dict[str, object] = {"tokens": case.tokens, "rows": rows, "bytes": moved}
        return group.one(0, "paths")[-1], Plan(
            partial(turn, "sample"), raws, verify=lambda: sum(group.each("wrong")), extra=extra
        )


def _elements(wanted: str) -> tuple[str, str, list[str]]:
    """Return an element type, the package of its arrays, and a line if the type is another."""
    packages = _DTYPES[wanted][1]
    for package in packages:
        if importlib.util.find_spec(package) is not None:
            return wanted, package, []
    return "float32", "numpy", [f"float32, as {wanted} needs {' or '.join(packages)}"]


def start_ranks(
    ranks: int, hidden: int, experts: int, topk: int, tokens: int, dtype: str = "bfloat16",
    numbers: Sequence[int] = (), quick: bool = False, hosts: int = 1,
) -> Group:  # fmt: skip
    """Start ranks for at most `tokens` tokens, on the host or each on a GPU of `numbers`.

    On GPUs a rank has a pool of tokens that take turns.
    """
    dtype, package, _ = _elements(dtype)
    if importlib.util.find_spec("numpy") is None:
        raise Unavailable("dispatch and combine are measured with numpy (pip install numpy)")
    if numbers and package == "numpy":
        wanted = " or ".join(_DTYPES["bfloat16"][1])
        raise Unavailable(f"calls of mori.ops on GPUs are measured with numpy, and {wanted}: install them")
    from .ep_rank import Rank, Setup
    from .ep_rows import Sizes

    row, beside = hidden * _DTYPES[dtype][0], 32 * topk + hidden // 8 + 256
    pool = max(2 * tokens, 64 if quick else _POOL_BYTES // hidden) if numbers else tokens
    # Rows received twice, combined tokens, facts of each row.
    heap = 2 * ranks * tokens * row + tokens * row + ranks * tokens * beside + 64 * MIB
    if hosts > 1:  # outgoing and incoming records, and rows on their way back
        heap += 2 * (hosts - 1) * (tokens * (row + beside) + 4 * MIB) + tokens * min(topk, ranks) * (row + beside)
    needed, free = (heap + row * tokens) * ranks, available_bytes()
    if free and needed > free and not numbers:
        raise Unavailable(f"this takes up to {needed >> 20} MiB of memory, {free >> 20} are free: fewer --tokens")
    sizes, flush = Sizes(pool, hidden, experts, topk, ranks), MIB if quick else 2 * L2_BYTES
    return Group(Rank, ranks, heap, Setup(sizes, tokens, dtype, package, tuple(numbers), flush, hosts))


def span_us(group: Group, method: str) -> float:
    """Return the time from the first rank's begin to the last one's end, the median of the rounds."""
    rounds = zip(*group.each(method), strict=True)
    spans = (max(t.end for t in ranks) - min(t.begin for t in ranks) for ranks in rounds)
    return float(statistics.median(spans)) * 1e6


class GPUEP(Suite):
    """Dispatch and combine between GPUs."""

    def __init__(self, args: argparse.Namespace) -> None:
        cases = full() if args.full or args.cases else usual()
        if args.cases:
            cases = pick(list({case.name: case for case in (*usual(), *cases)}.values()), args.cases)
        elif args.tokens is not None:
            cases = [case for case in cases if case.tokens == args.tokens]
        if not cases:
            raise ValueError(f"--tokens {args.tokens}: no case has so many; there are {FULL_TOKENS}")
        self._gpus, self._quick, self._hosts = gpus.choose(args.gpus), args.quick, args.hosts
        ranks, hidden = len(self._gpus.numbers), min(args.hidden, 512) if args.quick else args.hidden
        self._layer: dict[str, Any] = {"hidden": hidden, "experts": args.experts or 256, "topk": args.topk}
        check_layer(ranks, "GPUs", self._layer["experts"], args.topk)
        if ranks % self._hosts:
            raise ValueError(f"--hosts {self._hosts}: {ranks} ranks do not spread evenly over them")
        self._by_name, self._no_graphs = bool(args.cases), ""
        self._no_nccl = "left out by --no-nccl" if args.no_nccl else ""
        raw = "memcpy: all GPUs copy at the same time what crosses the wire; ratio: times its time"
        if self._hosts > 1:
            raw = f"the ranks act as if on {self._hosts} hosts; NCCL uses sockets; ratio: times its time"
        size = f"{ranks} ranks, {hidden} elements, top {args.topk} of {self._layer['experts']} experts"
        clock = "times by events, of calls in a row with different tokens"
        how = [*self._gpus.how(), size, clock, raw, "rows and sums are compared"]
        facts: dict[str, object] = {"ranks": ranks, **self._layer, "hosts": self._hosts, "quick": args.quick}
        super().__init__(cases, how, facts, args.quick)

    def start(self) -> None:
        tokens = max(case.tokens for case in self.cases)
        numbers = self._gpus.numbers
        setup = {"tokens": tokens, "numbers": numbers, "quick": self._quick, "hosts": self._hosts}
        self._group = self.enter_context(start_ranks(len(numbers), **self._layer, **setup))
        self._no_graphs = next(filter(None, self._group.each("why_no_graphs")), "")
        if self._no_graphs and not self._by_name:
            self.cases = [case for case in self.cases if case.mode != "graph"] or [
                replace(case, name=f"{case.name}-eager", mode="eager") for case in self.cases
            ]
            print(f"mori bench: cases with CUDA graphs are left out: {self._no_graphs}", file=sys.stderr)
        if not self._no_nccl:
            folder = self.enter_context(tempfile.TemporaryDirectory(prefix="mori-bench-"))
            answers = self._group.each("open_nccl", str(Path(folder) / "store"))
            self._no_nccl = next(filter(None, answers), "")
        if self._no_nccl:
            print(f"mori bench: no NCCL to compare with: {self._no_nccl}", file=sys.stderr)

    def plan(self, case: EPCase) -> tuple[str, Plan]:
        if case.mode == "graph" and self._no_graphs:
            raise Unavailable(f"CUDA graphs: {self._no_graphs}")
        group = self._group
        wire: int = max(wire for _, wire in group.each("prepare", case))
        host_us: list[float] = []

        def ours() -> float:
            us = span_us(group, "sample") / case.calls
            host_us.append(max(group.each("host_us")))
            return us

        raws = {"memcpy": lambda: span_us(group, "copies") / case.calls} if wire and self._hosts == 1 else {}
        if not self._no_nccl and case.kind != "both":
            raws["NCCL all_to_all"] = lambda: span_us(group, "nccl") / case.calls
        extra: dict[str, object] = {
            "tokens": case.tokens,
            "dtype": case.dtype,
            "blocks": case.blocks or "auto",
            "mode": case.mode,
            "routing": "skewed" if case.skewed else "uniform",
            "bytes": wire,
            **self._gpus.facts(len(self._gpus.numbers)),
        }

        def finish(us: float, medians: dict[str, float]) -> dict[str, object]:
            return {
                "us": round(us, 2),
                "gbps": round(wire / us / 1e3, 1) if us else None,
                "yardstick": medians.get("memcpy"),
                "nccl_us": medians.get("NCCL all_to_all"),
                "no_nccl": self._no_nccl or None,
                "host_us": round(statistics.median(host_us), 2),
            }

        return group.one(0, "paths")[-1], Plan(
            ours,
            raws,
            prepare=lambda: group.each("wipe"),
            verify=lambda: sum(group.each("wrong")),
            primary=next(iter(raws), None),
            extra=extra,
            finish=finish,
        )
