# SPDX-License-Identifier: MIT
"""The result of `mori demo` as a table."""

from __future__ import annotations

from .._bench.report import GREEN, RED, colour
from .._bench.report import human as human
from ..cli import _table
from .cache import Shape
from .outcome import Outcome


def shape_line(shape: Shape) -> str:
    """Describe the cache in one line."""
    return (
        f"{shape.layers} layers, {shape.kv_heads} KV heads x {shape.head_dim}, {shape.dtype}, "
        f"{shape.tokens} tokens in blocks of {shape.block_size}"
    )


def table(outcome: Outcome) -> str:
    """Return what was moved, how fast, and whether it arrived."""
    shape, latency = outcome.shape, outcome.latency_summary()
    verb = "prefill wrote to decode" if outcome.mode == "write" else "decode read from prefill"
    facts = {
        "machine": str(outcome.machine),
        "cache": shape_line(shape),
        "moved": f"{human(shape.moved_bytes)}: {shape.moved_blocks:,} blocks of {human(shape.block_bytes)}, {verb}",
        "path": outcome.path,
        "time": f"{outcome.seconds * 1e3:,.0f} ms",
        "throughput": f"{outcome.gbps:.2f} GB/s",
        "raw limit": _raw(outcome),
        "share": "-" if outcome.share is None else f"{outcome.share:.0%} of the raw limit",
        "layer latency": "   ".join(f"{name} {ms:.2f} ms" for name, ms in latency.items()),
    }
    if outcome.reasons:
        facts["why this path"] = "; ".join(outcome.reasons)
    return f"{_table.pairs(facts)}\n{verdict(outcome)}"


def _raw(outcome: Outcome) -> str:
    if outcome.raw_best is None:
        return "not measured: this system refuses process_vm_readv"
    name, gbps = outcome.raw_best
    return f"{gbps:.2f} GB/s, {name}, median of {len(outcome.raw[name])} around the transfer"


def verdict(outcome: Outcome) -> str:
    """Return one sentence about the bytes."""
    if outcome.right:
        return colour(f"Every byte of {outcome.shape.moved_blocks:,} blocks is right, spare blocks untouched.", GREEN)
    text = f"WRONG BYTES: {outcome.wrong:,} of {outcome.shape.moved_blocks:,} blocks differ"
    return colour(f"{text}, {outcome.touched:,} spare blocks were written to.", RED)
