# SPDX-License-Identifier: MIT
"""`mori demo shmem`: a ring and an all-to-all over symmetric memory."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import shmem
from .._bench.arguments import number
from .._bench.report import bar, human, this_machine
from ..shmem.tensor_utils import mori_shmem_create_tensor
from . import ranks

_KINDS = ("ring", "alltoall")


def main(argv: list[str]) -> int:
    """Return 0 if every byte is right, 1 if not or if the run failed, 2 for bad arguments."""
    return ranks.run(_parser(), argv, "PE", lambda args, size: partial(_exchange, args))


def _exchange(args: argparse.Namespace) -> ranks.Outcome | None:
    """Run both exchanges. PE 0 gets the outcome of all PEs."""
    import numpy as np

    me, npes = shmem.shmem_mype(), shmem.shmem_npes()
    if me == 0 and not args.json:
        print(f"{npes} PEs on {this_machine()}, {args.rounds} rounds of {human(args.bytes)}", flush=True)
    with bar(2 * args.rounds, me != 0 or args.json, leave=False, desc="ring") as progress:
        ring = _rounds(args, progress, args.bytes, *_ring(args))
        progress.set_description("all to all")
        alltoall = _rounds(args, progress, npes * args.bytes, *_alltoall(args))
    # Both arrays of a collective are symmetric.
    mine = mori_shmem_create_tensor((len(_KINDS), len(ring)), np.float64)
    everyone = mori_shmem_create_tensor((npes, *mine.shape), np.float64)
    mine[:] = ring, alltoall
    shmem.shmem_fcollect(shmem.SHMEM_TEAM_WORLD, everyone, mine, mine.size)
    if me != 0:
        return None
    peers = shmem.shmem_describe()["peers"]
    pes: list[dict[str, Any]] = []
    for pe, row in enumerate(everyone.tolist()):
        steps = {kind: _step(*figures) for kind, figures in zip(_KINDS, row, strict=True)}
        pes.append({"pe": pe, "path": peers[pe]["path"], **steps})
    sent, wrong = (sum(pe[kind][figure] for pe in pes for kind in _KINDS) for figure in ("sent", "wrong"))
    report = {"demo": "shmem", "pes": pes, "bytes": args.bytes, "rounds": args.rounds}
    good, bad = f"All {sent:,} bytes are right.", f"WRONG BYTES: {wrong:,} of {sent:,}"
    return ranks.Outcome(report, list(map(_row, pes)), not wrong, good, bad)


def _step(sent: float, seconds: float, wrong: float) -> dict[str, Any]:
    gbps = sent / seconds / 1e9 if seconds else 0.0
    return {"sent": int(sent), "seconds": seconds, "wrong": int(wrong), "gbps": gbps}


def _row(pe: dict[str, Any]) -> dict[str, Any]:
    return {
        "PE": pe["pe"],
        "reached by": pe["path"],
        "ring sent": human(pe["ring"]["sent"]),
        "GB/s": f"{pe['ring']['gbps']:.2f}",
        "all to all sent": human(pe["alltoall"]["sent"]),
        "GB/s ": f"{pe['alltoall']['gbps']:.2f}",
        "wrong bytes": pe["ring"]["wrong"] + pe["alltoall"]["wrong"],
    }


def _fill(array: Any, *seed: int) -> None:
    """Fill an array with bytes that every PE can compute for every other one."""
    import numpy as np

    array[:] = np.random.default_rng(seed).integers(0, 256, array.shape, np.uint8)


Step = Callable[[int], Any]


def _rounds(
    args: argparse.Namespace, progress: Any, sent: int, prepare: Step, exchange: Step, wrong: Step
) -> list[float]:
    """Run an exchange of `sent` bytes a round. Return bytes, seconds and wrong bytes."""
    seconds, errors = 0.0, 0
    for turn in range(1, args.rounds + 1):
        prepare(turn)
        shmem.shmem_barrier_all()  # the others have checked the previous round
        begin = time.perf_counter()
        exchange(turn)
        seconds += time.perf_counter() - begin
        errors += wrong(turn)
        progress.update(1)
    return [sent * args.rounds, seconds, errors]


def _ring(args: argparse.Namespace) -> tuple[Step, Step, Step]:
    """Put to the right neighbour with a signal, and wait for the left neighbour's."""
    import numpy as np

    me, npes, size = shmem.shmem_mype(), shmem.shmem_npes(), args.bytes
    here, arrived = mori_shmem_create_tensor((size,), np.uint8), mori_shmem_create_tensor((1,), np.uint64)
    message, expected = np.empty(size, np.uint8), np.empty(size, np.uint8)

    def prepare(turn: int) -> None:
        _fill(message, me, turn)
        _fill(expected, (me - 1) % npes, turn)

    def exchange(turn: int) -> None:
        shmem.shmem_put_signal(here, message, size, arrived, turn, shmem.SHMEM_SIGNAL_SET, (me + 1) % npes)
        shmem.shmem_signal_wait_until(arrived, shmem.SHMEM_CMP_EQ, turn)

    def wrong(turn: int) -> int:
        if args.spoil_a_byte and me == 0 and turn == 1:
            here[size // 2] ^= 1
        return int((here != expected).sum())

    return prepare, exchange, wrong


def _alltoall(args: argparse.Namespace) -> tuple[Step, Step, Step]:
    """Send a block to every PE."""
    import numpy as np

    me, npes, size = shmem.shmem_mype(), shmem.shmem_npes(), args.bytes
    source, dest = (mori_shmem_create_tensor((npes, size), np.uint8) for _ in range(2))
    expected = np.empty((npes, size), np.uint8)

    def prepare(turn: int) -> None:
        for pe in range(npes):
            _fill(source[pe], me, pe, turn)
            _fill(expected[pe], pe, me, turn)

    def exchange(turn: int) -> None:
        shmem.shmem_alltoall(shmem.SHMEM_TEAM_WORLD, dest, source, size)

    return prepare, exchange, lambda turn: int((dest != expected).sum())


def _parser() -> argparse.ArgumentParser:
    parser = ranks.parser(
        "shmem",
        "PEs put to their right neighbours round a ring, then exchange blocks all with all; every byte is verified. "
        "Starts its own processes, unless torchrun, mpirun, srun or Ray has started it.",
    )
    number(parser, "--bytes", 1 << 20, "bytes per message (default 1 MiB)")
    number(parser, "--rounds", 20, "rounds of each exchange")
    add = parser.add_argument
    add("--json", action="store_true", help="print only one JSON object")
    add("--spoil-a-byte", action="store_true", help="flip one byte before verification, to check that it is found")
    return parser
