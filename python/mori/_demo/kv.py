# SPDX-License-Identifier: MIT
"""`mori demo kv`: a prefill and a decode process move a paged KV cache."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from mori.io import BackendType

from .._bench import plot
from .._bench.arguments import number
from .._bench.harness import Turn, Unavailable
from .._bench.memory import available_bytes
from .._bench.process import Remote, RemoteError, Services
from .._bench.raw import process_vm, tcp
from .._bench.report import human, this_machine
from .kv_report import Outcome
from .kv_side import DTYPE_BYTES, Shape, Worker, block_table

DEFAULT_TOKENS = 3328
# Three interpreters, two Go runtimes and the pattern's text; measured at about 90 MiB.
_OVERHEAD_BYTES = 256 << 20
_RAW_SAMPLES = 3  # before the transfer, and as many after it


def main(argv: list[str]) -> int:
    """Return 0 if all bytes are right, 1 if not or if the run failed, 2 for bad arguments."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        tokens = DEFAULT_TOKENS if args.tokens is None else args.tokens
        wanted = Shape(args.layers, args.kv_heads, args.head_dim, args.dtype, args.block_size, tokens)
    except ValueError as err:
        parser.error(str(err))
    shape = fit(wanted, available_bytes(), may_shrink=args.tokens is None)
    if isinstance(shape, str):
        print(f"mori demo: {shape}", file=sys.stderr)
        return 1
    if shape != wanted:
        print(f"mori demo: memory is short, {shape.tokens} tokens instead of {wanted.tokens}", file=sys.stderr)

    def say(line: str) -> None:
        if not args.json:
            print(line, flush=True)

    say(f"{shape}: {human(shape.moved_bytes)} to move")
    try:
        with (
            Remote("prefill", Worker, "prefill", shape, args.seed, args.json) as prefill,
            Remote("decode", Worker, "decode", shape, args.seed, args.json) as decode,
        ):
            say(f"prefill is process {prefill.pid}, decode is process {decode.pid}")
            outcome = _run(args, shape, prefill, decode)
    except (RemoteError, Unavailable, OSError) as err:
        print(f"mori demo: {err}", file=sys.stderr)
        return 1
    print(json.dumps(outcome.as_dict()) if args.json else f"\n{outcome.table()}")
    if args.plot:
        outcome.draw(args.plot)
        say(f"picture: {args.plot}")
    return 0 if outcome.right else 1


def fit(shape: Shape, available: int, *, may_shrink: bool) -> Shape | str:
    """Return the shape, a smaller one if allowed and needed, or why neither fits."""
    need = 2 * shape.cache_bytes + _OVERHEAD_BYTES
    if available == 0 or need <= available:
        return shape
    smaller = shape
    while may_shrink and smaller.tokens > shape.block_size:
        smaller = replace(smaller, tokens=max(shape.block_size, smaller.tokens // 2))
        if 2 * smaller.cache_bytes + _OVERHEAD_BYTES <= available:
            return smaller
    return (
        f"two caches of {human(shape.cache_bytes)} need {human(need)} of memory, "
        f"{human(available)} are free; ask for fewer --tokens or --layers"
    )


def _run(args: argparse.Namespace, shape: Shape, prefill: Remote, decode: Remote) -> Outcome:
    """Measure the raw limit, move the cache, verify it, and measure the raw limit again."""
    both, mover = Services(prefill, decode), prefill if args.mode == "write" else decode
    both.each("allocate")
    tcp.connect(prefill, decode)
    cards = both.each("open", int(BackendType.TCP if args.path == "tcp" else BackendType.RDMA))
    prefill.call("connect", cards[1])
    decode.call("connect", cards[0])
    info = mover.call("start")
    path, reasons = str(info["path"]), [str(reason) for reason in info["reasons"]]
    if args.path not in ("auto", path.partition("/")[0]):
        raise Unavailable(f"the path is {path}, not {args.path}: {reasons}")
    raw: dict[str, list[float]] = {}
    turns = _yardsticks(args, shape, path, prefill, decode)

    def measure_raw() -> None:
        try:
            for name, turn in list(turns.items()) * (_RAW_SAMPLES // len(turns)):
                raw.setdefault(name, []).append(turn())
        except RemoteError as err:
            print(f"mori demo: no raw limit: {err}", file=sys.stderr)

    measure_raw()
    decode.call("wipe")
    times = mover.call("transfer", args.mode, args.inflight)
    if args.spoil_a_byte:
        decode.call("spoil", shape.layers // 2)
    wrong, touched = decode.call("verify")
    measure_raw()
    both.each("close")
    return Outcome(shape, this_machine(), args.mode, path, reasons, times, raw, wrong, touched)


def _yardsticks(
    args: argparse.Namespace, shape: Shape, path: str, prefill: Remote, decode: Remote
) -> dict[str, Turn]:
    if path.startswith("shm/") and not path.endswith("stream"):
        here, there = (shape.offsets(block_table(shape, args.seed, role)) for role in ("decode", "prefill"))
        decode.call("prepare_copies", here, there, shape.block_bytes)
        pull = "process_vm_readv"
        return {pull: process_vm.streams(prefill, decode, shape.moved_bytes, 1)[pull]}
    streams = tcp.streams(prefill, decode, shape.region_bytes, 1, views=shape.layers)
    return {f"TCP, {name}": turn for name, turn in streams.items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mori demo",
        description="Start a prefill and a decode process, each with a paged KV cache in host memory and a shuffled "
        "block table, and move the cache between them layer by layer, as a serving engine does. Verify every byte.",
    )
    add = parser.add_argument_group("the cache").add_argument
    add("--layers", type=int, default=80, metavar="N")
    add("--kv-heads", type=int, default=8, metavar="N")
    add("--head-dim", type=int, default=128, metavar="N")
    add("--dtype", choices=list(DTYPE_BYTES), default="bf16")
    add("--block-size", type=int, default=16, metavar="N", help="tokens per block (default 16)")
    add("--tokens", type=int, metavar="N", help=f"default {DEFAULT_TOKENS}, fewer if memory is short")
    add = parser.add_argument
    add("--seed", type=int, default=1, metavar="N", help="seed of the bytes and of the block tables")
    paths = ["auto", "tcp", "shm"]
    add("--path", choices=paths, default="auto", help="path of the bytes (default: the best available)")
    modes = ["write", "read"]
    add("--mode", choices=modes, default="write", help="prefill writes (default) or decode reads")
    number(parser, "--inflight", 1, "layers in flight at a time")
    plot.option(parser, "draw latencies and throughput (needs matplotlib)")
    add("--json", action="store_true", help="print only one JSON object")
    add("--spoil-a-byte", action="store_true", help="flip one byte before verification, to check that it is found")
    return parser
