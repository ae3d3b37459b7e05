# SPDX-License-Identifier: MIT
"""`mori bench ep`: dispatch and combine of mori.ops between processes of this host."""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cases import MIB, Case, Target, pick
from .gpu.ep_suite import GPUEP
from .group import Group
from .measure import Plan
from .memory import available_bytes
from .suite import Suite, Unavailable

if TYPE_CHECKING:
    from .ep_rank import Times, Turn

DESCRIPTION = (
    "Measure dispatch and combine of mori.ops between processes of this host and, in turns with them, memcpy of as "
    "many bytes by as many processes at the same time. The bytes that must move are those of the rows that the tokens "
    "make: one for each rank with an expert that the token chose. Every row and every sum is verified. On GPUs each "
    "has a process; the memcpy is of what goes over the wire, by all GPUs at once, and NCCL's all_to_all of the same "
    "rows is beside it."
)

_FEW = 128


@dataclass(frozen=True)
class EPCase(Case):
    """`kind` is the phase; few: of 128 tokens, else of as many as were asked for."""

    in_place: bool = False
    few: bool = False


_AIM = Target("ratio", ">=", 0.6)
CASES: tuple[EPCase, ...] = (
    EPCase("dispatch", "dispatch", "GB/s", target=_AIM),
    EPCase("combine", "combine", "GB/s", target=_AIM),
    EPCase("combine-in-place", "combine", "GB/s", target=_AIM, in_place=True),
    EPCase(f"dispatch-{_FEW}", "dispatch", "us", few=True),
    EPCase(f"combine-{_FEW}", "combine", "us", few=True),
)
NAMES = [case.name for case in CASES]
GPU_NAMES = ["dispatch-4096-fp8", "combine-128-bf16-eager", "dispatch-4096-bf16-24blocks", "and so on: see --full"]

# Bytes of an element, and what makes arrays of it where numpy does not, the best first.
_DTYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "bfloat16": (2, ("ml_dtypes", "torch")),
    "float32": (4, ("numpy",)),
    "float8_e4m3fn": (1, ("ml_dtypes", "torch")),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="processes (default 4)")
    parser.add_argument("--tokens", type=int, metavar="N", help="tokens of a rank (default 4096; on GPUs several)")
    parser.add_argument("--hidden", type=int, default=7168, metavar="N", help="elements of a token (default 7168)")
    parser.add_argument("--experts", type=int, metavar="N", help="over all ranks (default 32, on GPUs 256)")
    parser.add_argument("--topk", type=int, default=8, metavar="N", help="experts that a token chooses (default 8)")
    parser.add_argument("--dtype", choices=list(_DTYPES), default="bfloat16", help="of the rows (default bfloat16)")
    parser.add_argument("--full", action="store_true", help="on GPUs: every number of tokens, every budget of blocks")
    parser.add_argument(
        "--hosts", type=int, default=1, metavar="N", help="on GPUs: ranks behave as on so many hosts (default 1)"
    )
    parser.add_argument("--no-nccl", action="store_true", help="on GPUs: nothing beside mori and memcpy")


def suite(args: argparse.Namespace) -> Suite:
    """The cases of the memory that was asked for. Raises ValueError and Unavailable."""
    if args.device == "gpu":
        return GPUEP(args)
    args.tokens = 4096 if args.tokens is None else args.tokens
    args.experts = 32 if args.experts is None else args.experts
    return EP(args)


class EP:
    """See suite.Suite. Raises ValueError for cases and sizes that cannot be."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.cases: list[EPCase] = pick(CASES, args.cases)
        _check(args)
        self._dtype, self._package, lacking = _elements(args.dtype)
        self._args = args
        self._rounds_of_few = 3 if args.quick else 50
        size = f"{args.tokens} x {args.hidden} {self._dtype}, top {args.topk} of {args.experts} experts"
        self.how = [f"{size}, {args.ranks} ranks", "memcpy takes turns", "rows and sums are compared", *lacking]
        self.facts: dict[str, object] = {
            **{name: getattr(args, name) for name in ("ranks", "hidden", "experts", "topk")},
            "dtype": self._dtype,
        }

    def __enter__(self) -> EP:
        from_tokens = max(self._args.tokens, _FEW)
        heap = self._heap(from_tokens)
        needed, there = (heap + self._row * from_tokens) * self._args.ranks, available_bytes()
        if there and needed > there:
            raise Unavailable(f"this takes up to {needed >> 20} MiB of memory, {there >> 20} are free: fewer --tokens")
        if importlib.util.find_spec("numpy") is None:
            raise Unavailable("mori bench ep needs numpy (pip install numpy)")
        from .ep_rank import EPRank
        from .ep_rows import Sizes

        a = self._args
        sizes = Sizes(from_tokens, a.hidden, a.experts, a.topk, a.ranks)
        factory = f"{EPRank.__module__}:{EPRank.__name__}"
        self._group = Group(factory, a.ranks, heap, sizes, self._dtype, self._package)
        return self

    @property
    def _row(self) -> int:
        return int(self._args.hidden) * _DTYPES[self._dtype][0]

    def _heap(self, tokens: int) -> int:
        """What an op takes: rows received twice, combined tokens, and for each row its choices and flags."""
        received = self._args.ranks * tokens
        return int(2 * received * self._row + tokens * self._row + received * (32 * self._args.topk + 64) + 64 * MIB)

    def __exit__(self, *failure: Any) -> None:
        self._group.__exit__(*failure)

    def plan(self, case: Case) -> tuple[str, Plan]:
        assert isinstance(case, EPCase)
        n, rounds = (_FEW, self._rounds_of_few) if case.few else (self._args.tokens, 1)
        group, rows = self._group, sum(self._group.each("rows", n))
        moved = rows * self._row

        def ours() -> float:
            turns: list[list[Turn]] = group.each("turns", n, rounds, case.in_place)
            return _figure(case, moved, [[getattr(turn, case.kind) for turn in rank] for rank in turns])

        def copies() -> float:
            return _figure(case, moved, group.each("copies", n, rounds))

        best: Callable[[list[float]], float] = max if case.unit == "GB/s" else min
        extra: dict[str, object] = {"tokens": n, "rows": rows, "bytes": moved}
        verify = lambda: sum(group.each("wrong"))  # noqa: E731
        return group.one(0, "paths")[-1], Plan(ours, {"memcpy": copies}, verify=verify, best=best, extra=extra)


def _figure(case: EPCase, moved: int, times: Sequence[Sequence[Times]]) -> float:
    """From when the first rank began to when the last one ended, the median of the rounds."""
    spans = [max(t.end for t in at_once) - min(t.begin for t in at_once) for at_once in zip(*times, strict=True)]
    seconds: float = statistics.median(spans)
    return moved / seconds / 1e9 if case.unit == "GB/s" else seconds * 1e6


def _check(args: argparse.Namespace) -> None:
    for name in ("ranks", "tokens", "hidden", "experts", "topk"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.experts % args.ranks:
        raise ValueError(f"--experts {args.experts} do not spread evenly over {args.ranks} ranks")
    if args.topk > args.experts:
        raise ValueError(f"--topk: a token cannot choose {args.topk} of {args.experts} experts")


def _elements(wanted: str) -> tuple[str, str, list[str]]:
    """The element type, the package that makes arrays of it, and what to say if it is not the one asked for."""
    packages = _DTYPES[wanted][1]
    for package in packages:
        if importlib.util.find_spec(package) is not None:
            return wanted, package, []
    return "float32", "numpy", [f"float32, as {wanted} needs {' or '.join(packages)}"]
