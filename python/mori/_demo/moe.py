# SPDX-License-Identifier: MIT
"""`mori demo moe`: a mixture-of-experts layer over several processes, compared with one process."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import shmem
from .._bench.arguments import number
from .._bench.report import bar, human, this_machine
from ..ops import EpDispatchCombineConfig, EpDispatchCombineOp
from ..shmem.tensor_utils import mori_shmem_create_tensor
from . import ranks

if TYPE_CHECKING:
    from .moe_layer import Layer

_PHASES = ("gate", "dispatch", "experts", "combine")
_TOLERANCE = 1e-4  # relative to the largest output: ranks sum in another order


def main(argv: list[str]) -> int:
    """Return 0 if the output is right, 1 if not or if the run failed, 2 for bad arguments."""
    return ranks.run(_parser(), argv, "rank", _prepare)


def _prepare(args: argparse.Namespace, size: int) -> Callable[[], ranks.Outcome | None]:
    # The ranks of a host share its cores: numpy's threads would oversubscribe them.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from .moe_layer import Layer

    return partial(_run, args, Layer(args.hidden, args.tokens, args.experts, args.topk, size, args.seed))


def _run(args: argparse.Namespace, layer: Layer) -> ranks.Outcome | None:
    """Run the layer. Rank 0 gets the outcome of all ranks."""
    from .moe_layer import apply

    me = shmem.shmem_mype()
    if me == 0 and not args.json:
        print(_headline(layer), flush=True)
    x, experts = layer.tokens_of(me), list(layer.experts_of(me))
    config = EpDispatchCombineConfig(
        data_type=x.dtype,
        rank=me,
        world_size=layer.ranks,
        hidden_dim=layer.hidden,
        scale_dim=0,
        scale_type_size=0,
        max_token_type_size=4,
        max_num_inp_token_per_rank=layer.tokens,
        num_experts_per_rank=layer.experts_per_rank,
        num_experts_per_token=layer.topk,
        gpu_per_node=layer.ranks,
    )
    op = EpDispatchCombineOp(config)
    seconds = dict.fromkeys(_PHASES, 0.0)
    received, begin = 0, 0.0
    with bar(args.rounds * len(_PHASES), me != 0 or args.json, leave=False, desc="moe") as progress:

        def lap(phase: str) -> None:
            """Add up the seconds of a phase, up to a barrier of all ranks."""
            nonlocal begin
            shmem.shmem_barrier_all()
            seconds[phase] += time.perf_counter() - begin
            progress.update(1)
            begin = time.perf_counter()

        for _ in range(args.rounds):
            begin = time.perf_counter()
            chosen, weights = layer.gate(x)
            lap("gate")
            out, out_weights, _, out_chosen, total = op.dispatch(x, weights, None, chosen)
            received = int(total[0])
            lap("dispatch")
            rows = slice(0, received)
            made = apply(experts, out[rows], out_chosen[rows], out_weights[rows])
            if args.spoil_a_row and me == 0 and received:
                made[0] += 1
            lap("experts")
            result = op.combine(made, None, chosen)[0][: layer.tokens].copy()
            lap("combine")
    return _gather(args, layer, result, [received, *seconds.values()])


def _gather(args: argparse.Namespace, layer: Layer, result: Any, figures: list[float]) -> ranks.Outcome | None:
    """Send every rank's output to rank 0, which compares it with the layer run in one process."""
    import numpy as np

    everything = mori_shmem_create_tensor((layer.ranks, *result.shape), np.float32)
    facts = mori_shmem_create_tensor((layer.ranks, len(figures)), np.float64)
    me = shmem.shmem_mype()
    shmem.shmem_put(everything[me], result, result.size, 0)
    shmem.shmem_put(facts[me], np.array(figures, np.float64), len(figures), 0)
    shmem.shmem_barrier_all()
    if me != 0:
        return None
    whole = layer.whole()
    errors = np.abs(everything - whole).reshape(layer.ranks, -1).max(1) / np.abs(whole).max()
    right = bool(np.isfinite(everything).all() and (errors < _TOLERANCE).all())
    reports = []
    for rank, (received, *spent) in enumerate(facts.tolist()):
        gb = received * layer.hidden * 4 * args.rounds / 1e9
        ms = {f"{phase}_ms": s / args.rounds * 1e3 for phase, s in zip(_PHASES, spent, strict=True)}
        speed = {"dispatch_gbps": gb / spent[1], "combine_gbps": gb / spent[3]}
        reports.append({"rank": rank, "received": int(received), **ms, **speed, "error": float(errors[rank])})
    sizes = {name: getattr(layer, name) for name in ("hidden", "tokens", "experts_per_rank", "topk")}
    report = {"demo": "moe", **sizes, "ranks": reports, "rounds": args.rounds, "right": right}
    good = "The layer's output is that of a single process."
    bad = f"WRONG: outputs differ from those of a single process by more than {_TOLERANCE:g}"
    return ranks.Outcome(report, list(map(_row, reports)), right, good, bad)


def _row(r: dict[str, Any]) -> dict[str, Any]:
    return {
        "rank": r["rank"],
        "rows received": r["received"],
        **{f"{phase} ms": f"{r[f'{phase}_ms']:.2f}" for phase in _PHASES},
        "dispatch GB/s": f"{r['dispatch_gbps']:.2f}",
        "combine GB/s": f"{r['combine_gbps']:.2f}",
        "largest error": f"{r['error']:.1e}",
    }


def _headline(layer: Layer) -> str:
    return (
        f"{layer.ranks} ranks on {this_machine()}\n{layer.tokens} tokens of {layer.hidden} float32 a rank "
        f"({human(layer.tokens * layer.hidden * 4)}), {layer.topk} of {layer.experts} experts a token"
    )


def _parser() -> argparse.ArgumentParser:
    parser = ranks.parser(
        "moe",
        "A mixture-of-experts layer over several processes: gate, dispatch, expert MLPs, combine; the output is "
        "compared with that of one process. Starts its own processes, unless torchrun, mpirun, srun or Ray has "
        "started it: mpirun -np 8 mori demo moe 4096 128 8 2",
    )
    number(parser, "hidden", 512, "elements per token", nargs="?", metavar=None)
    number(parser, "tokens", 256, "tokens per rank", nargs="?", metavar=None)
    number(parser, "experts", 4, "experts per rank", nargs="?", metavar=None)
    number(parser, "topk", 4, "experts per token", nargs="?", metavar=None)
    number(parser, "--rounds", 3, "runs of the layer")
    add = parser.add_argument
    add("--seed", type=int, default=1, metavar="N", help="seed of tokens and weights")
    add("--json", action="store_true", help="print only one JSON object")
    add("--spoil-a-row", action="store_true", help="rank 0 spoils a row of its experts' output, to check verification")
    return parser
