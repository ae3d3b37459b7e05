# SPDX-License-Identifier: MIT
"""`mori demo moe`: a mixture-of-experts layer over several processes, compared with the same layer
in one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from .. import _errors
from .._bench.report import GREEN, RED, bar, colour, this_machine
from ..cli import _table
from . import ranks
from .report import human

_PHASES = ("gate", "dispatch", "experts", "combine")
# Relative to the largest output: ranks sum in another order.
_TOLERANCE = 1e-4


def main(argv: list[str]) -> int:
    """Return 0 if the layer's output is right, 1 if not or if the run failed, 2 for bad arguments.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    for name in ("pes", "rounds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    # The ranks of a host share its cores: numpy's threads would oversubscribe them.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        from .moe_layer import Layer
    except ImportError:
        print("mori demo moe: needs numpy (pip install numpy)", file=sys.stderr)
        return 1
    started = ranks.launched()
    try:
        layer = Layer(args.hidden, args.tokens, args.experts, args.topk, started or args.pes, args.seed)
    except ValueError as err:
        parser.error(str(err))
    if not started:
        return ranks.start(["demo", "moe", *argv], args.pes)
    return _rank(args, layer)


def _rank(args: argparse.Namespace, layer: Any) -> int:
    from .. import shmem

    try:
        ranks.join()
        report = _run(args, layer)
        if report is not None:
            print(json.dumps(report) if args.json else _text(report), flush=True)
        shmem.shmem_finalize()
    except _errors.MoriError as err:
        print(f"mori demo moe: {err}", file=sys.stderr)
        return 1
    return 0 if report is None or report["right"] else 1


def _config(layer: Any, rank: int) -> Any:
    import numpy as np

    from ..ops import EpDispatchCombineConfig

    return EpDispatchCombineConfig(
        data_type=np.float32,
        rank=rank,
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


def _run(args: argparse.Namespace, layer: Any) -> dict[str, Any] | None:
    """Run the layer. Rank 0 gets the report of all ranks."""
    from .. import shmem
    from ..ops import EpDispatchCombineOp
    from .moe_layer import apply

    me = shmem.shmem_mype()
    if me == 0 and not args.json:
        print(_headline(layer), flush=True)
    op = EpDispatchCombineOp(_config(layer, me))
    x, experts = layer.tokens_of(me), list(layer.experts_of(me))
    seconds = dict.fromkeys(_PHASES, 0.0)
    received = 0
    with bar(args.rounds * len(_PHASES), quiet=me != 0 or args.json, desc="moe") as progress:
        for _ in range(args.rounds):
            clock = _Clock(seconds, progress)
            chosen, weights = layer.gate(x)
            clock.lap("gate")
            out, out_weights, _, out_chosen, total = op.dispatch(x, weights, None, chosen)
            received = int(total[0])
            clock.lap("dispatch")
            rows = slice(0, received)
            made = apply(experts, out[rows], out_chosen[rows], out_weights[rows])
            if args.spoil_a_row and me == 0 and received:
                made[0] += 1
            clock.lap("experts")
            result = op.combine(made, None, chosen)[0][: layer.tokens].copy()
            clock.lap("combine")
    return _gather(args, layer, result, [received, *(seconds[phase] for phase in _PHASES)])


class _Clock:
    """Adds up the seconds of phases, each up to a barrier of all ranks."""

    def __init__(self, seconds: dict[str, float], progress: Any) -> None:
        self.seconds, self.progress = seconds, progress
        self.begin = time.perf_counter()

    def lap(self, phase: str) -> None:
        from .. import shmem

        shmem.shmem_barrier_all()
        now = time.perf_counter()
        self.seconds[phase] += now - self.begin
        self.progress.update(1)
        self.begin = time.perf_counter()


def _gather(args: argparse.Namespace, layer: Any, result: Any, figures: list[float]) -> dict[str, Any] | None:
    """Send every rank's output to rank 0, which compares it with the layer run in one process."""
    import numpy as np

    from .. import shmem
    from ..shmem.tensor_utils import mori_shmem_create_tensor

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
    row = layer.hidden * 4
    return {
        "demo": "moe",
        "hidden": layer.hidden,
        "tokens": layer.tokens,
        "experts_per_rank": layer.experts_per_rank,
        "topk": layer.topk,
        "ranks": [
            {
                "rank": rank,
                "received": int(fact[0]),
                **{f"{phase}_ms": fact[1 + i] / args.rounds * 1e3 for i, phase in enumerate(_PHASES)},
                "dispatch_gbps": fact[0] * row * args.rounds / fact[2] / 1e9,
                "combine_gbps": fact[0] * row * args.rounds / fact[4] / 1e9,
                "error": float(errors[rank]),
            }
            for rank, fact in enumerate(np.asarray(facts).tolist())
        ],
        "rounds": args.rounds,
        "right": right,
    }


def _headline(layer: Any) -> str:
    return (
        f"{layer.ranks} ranks on {this_machine()}\n{layer.tokens} tokens of {layer.hidden} float32 a rank "
        f"({human(layer.tokens * layer.hidden * 4)}), {layer.topk} of {layer.experts} experts a token"
    )


def _text(report: dict[str, Any]) -> str:
    rows = [
        {
            "rank": r["rank"],
            "rows received": r["received"],
            **{f"{phase} ms": f"{r[f'{phase}_ms']:.2f}" for phase in _PHASES},
            "dispatch GB/s": f"{r['dispatch_gbps']:.2f}",
            "combine GB/s": f"{r['combine_gbps']:.2f}",
            "largest error": f"{r['error']:.1e}",
        }
        for r in report["ranks"]
    ]
    verdict = (
        colour("The layer's output is that of a single process.", GREEN)
        if report["right"]
        else colour(f"WRONG: outputs differ from those of a single process by more than {_TOLERANCE:g}", RED)
    )
    return f"\n{_table.table(rows)}\n\n{verdict}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mori demo moe",
        description="A mixture-of-experts layer over several processes: gate, dispatch, expert MLPs, combine; the "
        "output is compared with that of one process. Starts its own processes, unless torchrun, mpirun, srun or Ray "
        "has started it: mpirun -np 8 mori demo moe 4096 128 8 2",
    )
    for name, default, text in (
        ("hidden", 512, "elements of a token"),
        ("tokens", 256, "tokens a rank"),
        ("experts", 4, "experts a rank"),
        ("topk", 4, "experts a token"),
    ):
        parser.add_argument(name, type=int, nargs="?", default=default, help=f"{text} (default {default})")
    parser.add_argument("--pes", type=int, default=4, metavar="N", help="processes to start (default 4)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="times that the layer runs (default 3)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of tokens and weights")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument(
        "--spoil-a-row", action="store_true", help="rank 0 spoils a row of its experts' output, to check verification"
    )
    return parser
