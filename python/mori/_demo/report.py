# SPDX-License-Identifier: MIT
"""The demo's result for people."""

from __future__ import annotations

from .._bench.progress import GREEN, RED, colour
from ..cli import _table
from .cache import Shape
from .outcome import Outcome

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human(size: float) -> str:
    """Bytes in the largest binary unit that keeps at least one digit before the point."""
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if size == int(size) else f"{size:.2f} {unit}"


def shape_line(shape: Shape) -> str:
    """The cache in one line."""
    return (
        f"{shape.layers} layers, {shape.kv_heads} KV heads x {shape.head_dim}, {shape.dtype}, "
        f"{shape.tokens} tokens in blocks of {shape.block_size}"
    )


def table(outcome: Outcome) -> str:
    """What was moved, how fast, and whether it arrived."""
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
    """One sentence about the bytes."""
    if outcome.right:
        return colour(f"Every byte of {outcome.shape.moved_blocks:,} blocks is right, spare blocks untouched.", GREEN)
    text = f"WRONG BYTES: {outcome.wrong:,} of {outcome.shape.moved_blocks:,} blocks differ"
    return colour(f"{text}, {outcome.touched:,} spare blocks were written to.", RED)
