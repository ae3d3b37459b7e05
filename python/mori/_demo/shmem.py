# SPDX-License-Identifier: MIT
"""`mori demo shmem`: a ring and an all-to-all over symmetric memory."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from .. import _errors
from .._bench.report import GREEN, RED, bar, colour, this_machine
from ..cli import _table
from . import ranks
from .report import human


@dataclass
class Step:
    """One kind of exchange at one PE: the bytes sent, the seconds spent and the wrong bytes found.
    """

    sent: int = 0
    seconds: float = 0.0
    wrong: int = 0

    @property
    def gbps(self) -> float:
        """10^9 bytes a second."""
        return self.sent / self.seconds / 1e9 if self.seconds else 0.0


def main(argv: list[str]) -> int:
    """Return 0 if every byte is right, 1 if not or if the run failed, 2 for bad arguments."""
    parser = _parser()
    args = parser.parse_args(argv)
    for name in ("pes", "bytes", "rounds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("mori demo shmem: needs numpy (pip install numpy)", file=sys.stderr)
        return 1
    if not ranks.launched():
        return ranks.start(["demo", "shmem", *argv], args.pes)
    return _pe(args)


def _pe(args: argparse.Namespace) -> int:
    from .. import shmem

    ranks.join()
    try:
        report = _exchange(args)
    except _errors.MoriError as err:
        print(f"mori demo shmem: PE {shmem.shmem_mype()}: {err}", file=sys.stderr)
        return 1
    if report is not None:
        print(json.dumps(report) if args.json else _text(report), flush=True)
    wrong = 0 if report is None else sum(pe["ring"]["wrong"] + pe["alltoall"]["wrong"] for pe in report["pes"])
    shmem.shmem_finalize()
    return 1 if wrong else 0


def _exchange(args: argparse.Namespace) -> dict[str, Any] | None:
    """Run both exchanges. PE 0 gets the report of all PEs."""
    import numpy as np

    from .. import shmem
    from ..shmem.tensor_utils import mori_shmem_create_tensor

    me, npes = shmem.shmem_mype(), shmem.shmem_npes()
    if me == 0 and not args.json:
        print(f"{npes} PEs on {this_machine()}, {args.rounds} rounds of {human(args.bytes)}", flush=True)
    with bar(2 * args.rounds, quiet=me != 0 or args.json, desc="ring") as progress:
        ring = _ring(args, progress)
        progress.set_description("all to all")
        alltoall = _alltoall(args.bytes, args.rounds, progress)
    mine = np.array([getattr(s, f) for s in (ring, alltoall) for f in ("sent", "seconds", "wrong")], np.float64)
    # Both arrays of a collective are symmetric.
    source = mori_shmem_create_tensor(mine.shape, np.float64)
    source[:] = mine
    everyone = mori_shmem_create_tensor((npes, *mine.shape), np.float64)
    shmem.shmem_fcollect(shmem.SHMEM_TEAM_WORLD, everyone, source, mine.size)
    if me != 0:
        return None
    pes = []
    paths = [peer["path"] for peer in shmem.shmem_describe()["peers"]]
    for pe, row in enumerate(everyone.tolist()):
        steps = [Step(int(row[i]), row[i + 1], int(row[i + 2])) for i in (0, 3)]
        pes.append(
            {
                "pe": pe,
                "path": paths[pe],
                "ring": {**asdict(steps[0]), "gbps": steps[0].gbps},
                "alltoall": {**asdict(steps[1]), "gbps": steps[1].gbps},
            }
        )
    return {"demo": "shmem", "pes": pes, "bytes": args.bytes, "rounds": args.rounds}


def _fill(array: Any, *seed: int) -> None:
    """Fill an array with bytes that every PE can compute for every other one."""
    import numpy as np

    array[:] = np.random.default_rng(seed).integers(0, 256, array.shape, np.uint8)


def _ring(args: argparse.Namespace, progress: Any) -> Step:
    """Put to the right neighbour with a signal, and wait for the left neighbour's."""
    import numpy as np

    from .. import shmem
    from ..shmem.tensor_utils import mori_shmem_create_tensor

    me, npes = shmem.shmem_mype(), shmem.shmem_npes()
    right, left = (me + 1) % npes, (me - 1) % npes
    size = args.bytes
    here = mori_shmem_create_tensor((size,), np.uint8)
    arrived = mori_shmem_create_tensor((1,), np.uint64)
    message, expected = np.empty(size, np.uint8), np.empty(size, np.uint8)
    step = Step()
    for turn in range(1, args.rounds + 1):
        _fill(message, me, turn)
        _fill(expected, left, turn)
        shmem.shmem_barrier_all()  # the neighbour has checked the previous round
        begin = time.perf_counter()
        shmem.shmem_put_signal(here, message, size, arrived, turn, shmem.SHMEM_SIGNAL_SET, right)
        shmem.shmem_signal_wait_until(arrived, shmem.SHMEM_CMP_EQ, turn)
        step.seconds += time.perf_counter() - begin
        step.sent += size
        if args.spoil_a_byte and me == 0 and turn == 1:
            here[size // 2] ^= 1
        step.wrong += int((here != expected).sum())
        progress.update(1)
    return step


def _alltoall(size: int, rounds: int, progress: Any) -> Step:
    """Send a block to every PE."""
    import numpy as np

    from .. import shmem
    from ..shmem.tensor_utils import mori_shmem_create_tensor

    me, npes = shmem.shmem_mype(), shmem.shmem_npes()
    source = mori_shmem_create_tensor((npes, size), np.uint8)
    dest = mori_shmem_create_tensor((npes, size), np.uint8)
    expected = np.empty(size, np.uint8)
    step = Step()
    for turn in range(1, rounds + 1):
        for pe in range(npes):
            _fill(source[pe], me, pe, turn)
        shmem.shmem_barrier_all()
        begin = time.perf_counter()
        shmem.shmem_alltoall(shmem.SHMEM_TEAM_WORLD, dest, source, size)
        step.seconds += time.perf_counter() - begin
        step.sent += npes * size
        for pe in range(npes):
            _fill(expected, pe, me, turn)
            step.wrong += int((dest[pe] != expected).sum())
        progress.update(1)
    return step


def _text(report: dict[str, Any]) -> str:
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
    wrong, sent = sum(row["wrong bytes"] for row in rows), sum(p[k]["sent"] for p in report["pes"] for k in _KINDS)
    verdict = (
        colour(f"WRONG BYTES: {wrong:,} of {sent:,}", RED) if wrong else colour(f"All {sent:,} bytes are right.", GREEN)
    )
    return f"\n{_table.table(rows)}\n\n{verdict}"


_KINDS = ("ring", "alltoall")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mori demo shmem",
        description="PEs put to their right neighbours round a ring, then exchange blocks all with all; every byte "
        "is verified. Starts its own processes, unless torchrun, mpirun, srun or Ray has started it.",
    )
    parser.add_argument("--pes", type=int, default=4, metavar="N", help="processes to start (default 4)")
    parser.add_argument("--bytes", type=int, default=1 << 20, metavar="N", help="bytes of a message (default 1 MiB)")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="of each exchange (default 20)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument(
        "--spoil-a-byte", action="store_true", help="flip one byte before verification, to check that it is found"
    )
    return parser
