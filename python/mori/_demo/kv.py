# SPDX-License-Identifier: MIT
"""`mori demo kv`: a prefill and a decode process move a paged KV cache."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mori.io import BackendType

from .._bench import plot
from .._bench.memory import available_bytes
from .._bench.process import Remote, RemoteError
from .._bench.raw import tcp
from .._bench.report import bar, human, this_machine
from .kv_report import Outcome
from .kv_side import DTYPE_BYTES, Shape, Worker

DEFAULT_TOKENS = 3328
# Three interpreters, two Go runtimes and the pattern's text; measured at about 90 MiB.
_OVERHEAD_BYTES = 256 << 20
_RAW_PASSES = 3  # before the transfer, and as many after it


class PathRefused(RuntimeError):
    """The engines cannot use the requested path."""


def main(argv: list[str]) -> int:
    """Return 0 if all bytes are right, 1 if not or if the run failed, 2 for bad arguments."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        tokens = DEFAULT_TOKENS if args.tokens is None else args.tokens
        wanted = Shape(args.layers, args.kv_heads, args.head_dim, args.dtype, args.block_size, tokens)
        if args.inflight < 1:
            raise ValueError(f"--inflight must be at least 1, got {args.inflight}")
        if args.plot and (why := plot.unavailable(args.plot)):
            raise ValueError(why)
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
            Remote("prefill", Worker, "prefill", shape, args.seed) as prefill,
            Remote("decode", Worker, "decode", shape, args.seed) as decode,
        ):
            say(f"prefill is process {prefill.pid}, decode is process {decode.pid}")
            outcome = _Run(args, shape, prefill, decode).steps()
    except (RemoteError, PathRefused, OSError) as err:
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


class _Run:
    """One run: measure the raw limit, move the cache, verify it, measure the raw limit again."""

    def __init__(self, args: argparse.Namespace, shape: Shape, prefill: Remote, decode: Remote) -> None:
        self._args, self._shape, self._prefill, self._decode = args, shape, prefill, decode
        self._mover = prefill if args.mode == "write" else decode
        self._raw: dict[str, list[float]] = {}

    def steps(self) -> Outcome:
        args, shape, decode = self._args, self._shape, self._decode
        decode.begin("allocate")
        self._watch(self._prefill, "allocate", total=shape.layers, desc="filling  ", unit=" layers")
        decode.result()
        info = self._connect()
        path = str(info["path"])
        self._measure_raw(path)
        decode.call("wipe")
        self._watch(
            self._mover,
            "transfer",
            args.mode,
            args.inflight,
            share=lambda layers: layers * shape.layer_bytes / 1e9,
            total=shape.moved_bytes / 1e9,
            desc="moving   ",
            unit=" GB",
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n:.2f}/{total:.2f} GB [{elapsed}<{remaining}, {rate_fmt}]",
        )
        times = self._mover.call("layer_times")
        if args.spoil_a_byte:
            decode.call("spoil", shape.layers // 2)
        counts = self._watch(decode, "verify", total=shape.layers, desc="verifying", unit=" layers")
        wrong, touched = map(sum, zip(*counts, strict=True))
        self._measure_raw(path)
        self._both("close")
        reasons = [str(reason) for reason in info["reasons"]]
        return Outcome(shape, this_machine(), args.mode, path, reasons, times, self._raw, wrong, touched)

    def _watch(
        self, side: Remote, method: str, *args: object, share: Callable[[Any], float] = lambda event: 1, **style: Any
    ) -> list[Any]:
        """Call a method and show its progress. Return its events."""
        side.begin(method, *args)
        events = []
        with bar(quiet=self._args.json, leave=True, **style) as progress:
            for event in side.events():
                events.append(event)
                progress.update(share(event))
        return events

    def _both(self, method: str, *args: object) -> list[Any]:
        """Call a method of both processes at the same time."""
        for process in (self._prefill, self._decode):
            process.begin(method, *args)
        return [process.result() for process in (self._prefill, self._decode)]

    def _connect(self) -> dict[str, Any]:
        """Exchange descriptors and return the description of the sessions."""
        port, path = self._decode.call("tcp.listen"), self._args.path
        self._decode.begin("tcp.accept")
        self._prefill.call("tcp.dial", port)
        self._decode.result()
        prefill, decode = self._both("open", int(BackendType.TCP if path == "tcp" else BackendType.RDMA))
        self._prefill.call("connect", decode)
        self._decode.call("connect", prefill)
        info: dict[str, Any] = self._mover.call("start")
        if path != "auto" and str(info["path"]).partition("/")[0] != path:
            raise PathRefused(f"the path is {info['path']}, not {path}: {info['reasons']}")
        return info

    def _measure_raw(self, path: str) -> None:
        if path.startswith("shm/") and not path.endswith("stream"):
            try:
                for _ in range(_RAW_PASSES):
                    self._raw.setdefault("process_vm_readv", []).append(self._decode.call("raw_read"))
            except RemoteError as err:
                print(f"mori demo: no raw limit: {err}", file=sys.stderr)
            return
        size = self._shape.region_bytes
        for n in tcp.CONNECTIONS:
            self._decode.begin("tcp.flow", False, n, size, 1)
            seconds = self._prefill.call("tcp.flow", True, n, size, 1)
            self._raw.setdefault(f"TCP, {tcp.label(n)}", []).append(self._shape.cache_bytes / seconds / 1e9)
            self._decode.result()


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
    add("--block-size", type=int, default=16, metavar="N", help="tokens in a block (default 16)")
    add("--tokens", type=int, metavar="N", help=f"default {DEFAULT_TOKENS}, fewer if memory is short")
    add = parser.add_argument
    add("--seed", type=int, default=1, metavar="N", help="of the bytes and of the block tables")
    paths = ["auto", "tcp", "shm"]
    add("--path", choices=paths, default="auto", help="how the bytes go (default: the best there is)")
    modes = ["write", "read"]
    add("--mode", choices=modes, default="write", help="prefill writes (default) or decode reads")
    add("--inflight", type=int, default=1, metavar="N", help="layers on their way at a time (default 1)")
    add("--plot", type=Path, metavar="FILE", help="draw latencies and throughput (needs matplotlib)")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add("--spoil-a-byte", action="store_true", help="flip one byte before verification, to check that it is found")
    return parser
