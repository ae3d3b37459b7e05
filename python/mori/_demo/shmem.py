# SPDX-License-Identifier: MIT
"""`mori demo shmem`: a ring and an all-to-all over symmetric memory."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from .. import shmem
from .._bench.report import GREEN, RED, bar, colour, human, this_machine
from ..cli import _table
from ..shmem.tensor_utils import mori_shmem_create_tensor
from . import ranks

_KINDS = ("ring", "alltoall")
_FIGURES = ("sent", "seconds", "wrong")


def main(argv: list[str]) -> int:
    """Return 0 if every byte is right, 1 if not or if the run failed, 2 for bad arguments."""
    args = ranks.parse(_parser(), argv, "pes", "bytes", "rounds")
    if args is None:
        return 1
    return ranks.run(["shmem", *argv], args, lambda: _exchange(args), _text, lambda report: not _total(report, "wrong"))


def _exchange(args: argparse.Namespace) -> ranks.Report | None:
    """Run both exchanges. PE 0 gets the report of all PEs."""
    import numpy as np

    me, npes = shmem.shmem_mype(), shmem.shmem_npes()
    if me == 0 and not args.json:
        print(f"{npes} PEs on {this_machine()}, {args.rounds} rounds of {human(args.bytes)}", flush=True)
    with bar(2 * args.rounds, me != 0 or args.json, leave=False, desc="ring") as progress:
        ring = _ring(args, progress)
        progress.set_description("all to all")
        alltoall = _alltoall(args, progress)
    # Both arrays of a collective are symmetric.
    mine = mori_shmem_create_tensor((len(_KINDS) * len(_FIGURES),), np.float64)
    everyone = mori_shmem_create_tensor((npes, *mine.shape), np.float64)
    mine[:] = ring + alltoall
    shmem.shmem_fcollect(shmem.SHMEM_TEAM_WORLD, everyone, mine, mine.size)
    if me != 0:
        return None
    peers = shmem.shmem_describe()["peers"]
    pes = []
    for pe, row in enumerate(everyone.reshape(npes, len(_KINDS), -1).tolist()):
        steps = {kind: _step(*figures) for kind, figures in zip(_KINDS, row, strict=True)}
        pes.append({"pe": pe, "path": peers[pe]["path"], **steps})
    return {"demo": "shmem", "pes": pes, "bytes": args.bytes, "rounds": args.rounds}


def _step(sent: float, seconds: float, wrong: float) -> dict[str, Any]:
    gbps = sent / seconds / 1e9 if seconds else 0.0
    return {"sent": int(sent), "seconds": seconds, "wrong": int(wrong), "gbps": gbps}


def _fill(array: Any, *seed: int) -> None:
    """Fill an array with bytes that every PE can compute for every other one."""
    import numpy as np

    array[:] = np.random.default_rng(seed).integers(0, 256, array.shape, np.uint8)


def _rounds(
    args: argparse.Namespace,
    progress: Any,
    sent: int,
    prepare: Callable[[int], None],
    exchange: Callable[[int], None],
    wrong: Callable[[int], int],
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


def _ring(args: argparse.Namespace, progress: Any) -> list[float]:
    """Put to the right neighbour with a signal, and wait for the left neighbour's."""
    import numpy as np

    me, npes, size = shmem.shmem_mype(), shmem.shmem_npes(), args.bytes
    here = mori_shmem_create_tensor((size,), np.uint8)
    arrived = mori_shmem_create_tensor((1,), np.uint64)
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

    return _rounds(args, progress, size, prepare, exchange, wrong)


def _alltoall(args: argparse.Namespace, progress: Any) -> list[float]:
    """Send a block to every PE."""
    import numpy as np

    me, npes, size = shmem.shmem_mype(), shmem.shmem_npes(), args.bytes
    source, dest = (mori_shmem_create_tensor((npes, size), np.uint8) for _ in range(2))
    expected = np.empty(size, np.uint8)

    def prepare(turn: int) -> None:
        for pe in range(npes):
            _fill(source[pe], me, pe, turn)

    def exchange(turn: int) -> None:
        shmem.shmem_alltoall(shmem.SHMEM_TEAM_WORLD, dest, source, size)

    def wrong(turn: int) -> int:
        count = 0
        for pe in range(npes):
            _fill(expected, pe, me, turn)
            count += int((dest[pe] != expected).sum())
        return count

    return _rounds(args, progress, npes * size, prepare, exchange, wrong)


def _total(report: ranks.Report, figure: str) -> int:
    return sum(pe[kind][figure] for pe in report["pes"] for kind in _KINDS)


def _text(report: ranks.Report) -> str:
    rows = [
        {
            "PE": pe["pe"],
            "reached by": pe["path"],
            "ring sent": human(pe["ring"]["sent"]),
            "GB/s": f"{pe['ring']['gbps']:.2f}",
            "all to all sent": human(pe["alltoall"]["sent"]),
            "GB/s ": f"{pe['alltoall']['gbps']:.2f}",
            "wrong bytes": pe["ring"]["wrong"] + pe["alltoall"]["wrong"],
        }
        for pe in report["pes"]
    ]
    wrong, sent = _total(report, "wrong"), _total(report, "sent")
    verdict = colour(f"All {sent:,} bytes are right.", GREEN)
    if wrong:
        verdict = colour(f"WRONG BYTES: {wrong:,} of {sent:,}", RED)
    return f"\n{_table.table(rows)}\n\n{verdict}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mori demo shmem",
        description="PEs put to their right neighbours round a ring, then exchange blocks all with all; every byte "
        "is verified. Starts its own processes, unless torchrun, mpirun, srun or Ray has started it.",
    )
    add = parser.add_argument
    add("--pes", type=int, default=4, metavar="N", help="processes to start (default 4)")
    add("--bytes", type=int, default=1 << 20, metavar="N", help="bytes of a message (default 1 MiB)")
    add("--rounds", type=int, default=20, metavar="N", help="of each exchange (default 20)")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add("--spoil-a-byte", action="store_true", help="flip one byte before verification, to check that it is found")
    return parser
