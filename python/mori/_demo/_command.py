# SPDX-License-Identifier: MIT
"""The command line of `mori demo`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .._bench import plot as pictures
from .._bench.memory import available_bytes
from .._bench.process import RemoteError
from . import plot, report
from .cache import DTYPE_BYTES, Shape
from .journey import PathRefused, Request, run

DEFAULT_TOKENS = 3328
# Three interpreters, two Go runtimes and the pattern's text; measured at about 90 MiB.
_OVERHEAD_BYTES = 256 << 20


def main(argv: list[str]) -> int:
    """Return 0 if all bytes are right, 1 if not or if the run failed, 2 for bad arguments."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        tokens = DEFAULT_TOKENS if args.tokens is None else args.tokens
        shape = Shape(args.layers, args.kv_heads, args.head_dim, args.dtype, args.block_size, tokens)
    except ValueError as err:
        parser.error(str(err))
    if args.inflight < 1:
        parser.error(f"--inflight must be at least 1, got {args.inflight}")
    if args.plot and (why := pictures.unavailable(args.plot)):
        parser.error(why)
    fitting = fit(shape, available_bytes(), may_shrink=args.tokens is None)
    if isinstance(fitting, str):
        print(f"mori demo: {fitting}", file=sys.stderr)
        return 1
    if fitting != shape:
        print(f"mori demo: memory is short, {fitting.tokens} tokens instead of {shape.tokens}", file=sys.stderr)
    request = Request(fitting, args.seed, args.path, args.mode, args.inflight, args.spoil_a_byte, args.json)
    return _show(request, args.plot)


def _show(request: Request, picture: Path | None) -> int:
    def say(line: str) -> None:
        if not request.quiet:
            print(line, flush=True)

    say(f"{report.shape_line(request.shape)}: {report.human(request.shape.moved_bytes)} to move")
    try:
        outcome = run(request, say)
    except (RemoteError, PathRefused, OSError) as err:
        print(f"mori demo: {err}", file=sys.stderr)
        return 1
    print(json.dumps(outcome.as_dict()) if request.quiet else f"\n{report.table(outcome)}")
    if picture:
        plot.draw(outcome, picture)
        say(f"picture: {picture}")
    return 0 if outcome.right else 1


def fit(shape: Shape, available: int, *, may_shrink: bool) -> Shape | str:
    """Return the shape, a smaller one if allowed and needed, or a sentence that says why neither
    fits.
    """
    need = 2 * shape.cache_bytes + _OVERHEAD_BYTES
    if available == 0 or need <= available:
        return shape
    room = (available - _OVERHEAD_BYTES) // 2
    tokens = shape.tokens
    while may_shrink and tokens > shape.block_size:
        tokens = max(shape.block_size, tokens // 2)
        smaller = shape.with_tokens(tokens)
        if smaller.cache_bytes <= room:
            return smaller
    return (
        f"two caches of {report.human(shape.cache_bytes)} need {report.human(need)} of memory, "
        f"{report.human(available)} are free; ask for fewer --tokens or --layers"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mori demo",
        description="Start a prefill and a decode process, each with a paged KV cache in host memory and a shuffled "
        "block table, and move the cache between them layer by layer, as a serving engine does. Verify every byte.",
    )
    shape = parser.add_argument_group("the cache")
    shape.add_argument("--layers", type=int, default=80, metavar="N")
    shape.add_argument("--kv-heads", type=int, default=8, metavar="N")
    shape.add_argument("--head-dim", type=int, default=128, metavar="N")
    shape.add_argument("--dtype", choices=list(DTYPE_BYTES), default="bf16")
    shape.add_argument("--block-size", type=int, default=16, metavar="N", help="tokens in a block (default 16)")
    shape.add_argument("--tokens", type=int, metavar="N", help=f"default {DEFAULT_TOKENS}, fewer if memory is short")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the bytes and of the block tables")
    parser.add_argument(
        "--path", choices=["auto", "tcp", "shm"], default="auto", help="how the bytes go (default: the best there is)"
    )
    parser.add_argument(
        "--mode", choices=["write", "read"], default="write", help="prefill writes (default) or decode reads"
    )
    parser.add_argument(
        "--inflight", type=int, default=1, metavar="N", help="layers on their way at a time (default 1)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw latencies and throughput (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument(
        "--spoil-a-byte", action="store_true", help="flip one byte before verification, to check that it is found"
    )
    return parser
