# SPDX-License-Identifier: MIT
"""The tables of cases on GPUs, and what was expected of each before it was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ..cases import KIB, MIB, Case, Target

Place = Literal["gpu", "host"]
Via = Literal["XGMI", "RDMA", "TCP"]

L2_BYTES = 64 * MIB
POOL_BYTES = 8 * L2_BYTES
"""Memory of each side whose blocks take turns: so much that no cache serves them."""

_BATCHES = 16  # of a sample, at least
_MOST = 2048
_QUICK = 64  # times less


@dataclass(frozen=True)
class GPUCase(Case):
    """A transfer from a GPU of one process to a GPU, or to host memory, of another.

    `via` names the backend, `copy_blocks` how many blocks of the GPU may copy (None: mori chooses), `depth` how many
    batches are under way at once. `predicted` is the figure expected, and why.
    """

    via: Via = "XGMI"
    there: Place = "gpu"
    copy_blocks: int | None = None
    depth: int = 1
    pool: int = POOL_BYTES
    predicted: str = ""
    why: str = ""

    @property
    def batches(self) -> int:
        """How many batches of distinct blocks the pools hold."""
        return max(1, min(_MOST, self.pool // self.bytes))

    @property
    def rounds(self) -> int:
        """How often a sample goes through all batches."""
        return max(1, _BATCHES // self.batches)

    def quick(self) -> GPUCase:
        """The same with little work."""
        size, entries = min(self.size, MIB), self.entries
        if entries > 1:
            entries = max(2, entries // _QUICK)
        return replace(self, size=size, entries=entries, pool=4 * size * entries)


def _blocks() -> Iterator[GPUCase]:
    """Random blocks in random order, from GPU to GPU; a batch waits for none before it."""

    def case(label: str, entries: int, size: int, target: Target, predicted: str, why: str, **more: object) -> GPUCase:
        made = GPUCase(f"gpu-{label}", "blocks", "GB/s", None, entries, size, False, target, depth=4)
        return replace(made, predicted=predicted, why=why, **more)  # type: ignore[arg-type]

    fast, whole = Target("value", ">=", 300, "GB/s"), Target("ratio", ">=", 0.95)
    few = Target("value", ">=", 280, "GB/s")
    list_read = "334 for 64 blocks that read their list from host memory; batches of 32 blocks run beside each other"
    yield case("8192x4KiB", 8192, 4 * KIB, fast, "325 GB/s", list_read)
    pulled = "pulled as pushed: 340 for the kernel with its list on the GPU"
    yield case("8192x4KiB-read", 8192, 4 * KIB, fast, "325 GB/s", pulled, read=True)
    eight = "310 for the kernel with eight blocks; one batch after the other, with 3 µs of 108 between"
    yield case("8192x4KiB-8blocks", 8192, 4 * KIB, few, "300 GB/s", eight, copy_blocks=8)
    hidden = "359 for 64 blocks; 373 µs of a batch hide the call of the next"
    yield case("8192x16KiB", 8192, 16 * KIB, fast, "357 GB/s", hidden)
    sm = "0.93 of the memcpy: the copy engine packs the link better than an SM"
    yield case("4096x64KiB", 4096, 64 * KIB, whole, "363 GB/s", sm)
    yield case("1024x256KiB", 1024, 256 * KIB, whole, "363 GB/s", sm)
    engine = "large single pieces go through the copy engine, 64 calls of 2 µs in 2.7 ms"
    yield case("64x16MiB", 64, 16 * MIB, whole, "385 GB/s", engine)


def _others() -> Iterator[GPUCase]:
    yield GPUCase(
        "gpu-4KiB-latency",
        "latency",
        "us",
        size=4 * KIB,
        target=Target("value", "<=", 15, "us"),
        predicted="14 us",
        why="10.9 from launch to the word in host memory, 2 for the poller and the waiter, 1 for Python",
    )
    yield GPUCase(
        "gpu-tcp-64MiB",
        "tcp",
        "GB/s",
        size=64 * MIB,
        target=Target("ratio", ">=", 0.85),
        via="TCP",
        predicted="0.87 x raw",
        why="copies to and from pinned memory run at 55 GB/s beside the sends; filling the pipeline is left",
    )
    for suffix, read in (("", False), ("-read", True)):
        yield GPUCase(
            f"gpu-host-64MiB{suffix}",
            "host",
            "GB/s",
            size=64 * MIB,
            read=read,
            target=Target("ratio", ">=", 0.9),
            via="RDMA",
            there="host",
            predicted="52 GB/s",
            why="55 over PCIe for 1.2 ms, and 50 µs for a message to the other process and back",
        )


IO_CASES: tuple[GPUCase, ...] = (*_blocks(), *_others())


@dataclass(frozen=True)
class ShmemCase(Case):
    """An operation of PEs whose symmetric memory is on GPUs; a sample is `rounds` of them."""

    rounds: int = 1
    predicted: str = ""
    why: str = ""


SHMEM_CASES: tuple[ShmemCase, ...] = (
    ShmemCase(
        "barrier-on-stream",
        "barrier",
        "us",
        target=Target("value", "<=", 5, "us"),
        rounds=200,
        predicted="4.5 us",
        why="launched ahead: a kernel follows another in 1.5, all signal all at once, and a signal is seen after 2.5",
    ),
    ShmemCase(
        "barrier-on-stream-calls",
        "barrier",
        "us",
        rounds=200,
        predicted="8 us",
        why="as fast as Python calls it: 7.3 to 9.3 on four GPUs, however the kernels signal",
    ),
    ShmemCase(
        "put-signal-8B",
        "signal",
        "us",
        size=8,
        target=Target("value", "<=", 2, "us"),
        rounds=2000,
        predicted="2.7 us",
        why="a kernel's put of 8 bytes and its signal, seen by a kernel of the peer: half of there and back",
    ),
    ShmemCase(
        "gpu-put-64MiB",
        "put",
        "GB/s",
        size=64 * MIB,
        target=Target("ratio", ">=", 0.9),
        rounds=16,
        predicted="370 GB/s",
        why="a memcpy's 170 µs at 394, and 10 for the call, the launch and the wait",
    ),
    ShmemCase(
        "gpu-get-64MiB",
        "get",
        "GB/s",
        size=64 * MIB,
        target=Target("ratio", ">=", 0.9),
        rounds=16,
        predicted="365 GB/s",
        why="the same, pulled",
    ),
    ShmemCase(
        "gpu-put-8B",
        "put",
        "us",
        size=8,
        rounds=500,
        predicted="11 us",
        why="a copy of the driver and the wait for it take 9 to 10; put is complete when it returns",
    ),
)
