# SPDX-License-Identifier: MIT
"""`mori bench io`: transfers of mori.io between two processes, in host or GPU memory."""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import statistics
import time
import timeit
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mori import device
from mori._errors import MoriError
from mori.cpp import TransferStatus

from . import gpus
from .gpus import L2_BYTES
from .harness import (
    KIB,
    MIB,
    Case,
    Plan,
    Point,
    Suite,
    Target,
    Turn,
    Unavailable,
    at_least,
    at_most,
    median_us,
    pick,
    providers,
    short,
)
from .io_side import GRANULE, Side, environment, finish, in_flight
from .process import Local, Remote, RemoteError, Services
from .raw import driver, perftest, process_vm, tcp

DESCRIPTION = (
    "Measure transfers between two processes. The raw limits of this machine take turns with them: a plain "
    "process_vm_readv loop and plain TCP streams; on RDMA devices ib_write_bw and its siblings of perftest, if "
    "installed; on GPUs the driver's memcpy. Every byte that was moved is verified."
)

BUFFER_BYTES = 128 * MIB
POOL_BYTES = 8 * L2_BYTES
"""The blocks of a GPU that take turns: more than any cache holds."""

_BATCHES, _MOST_BATCHES, _QUICK = 16, 2048, 64
_STREAM_BYTES = 256 * MIB


def provider(medium: str) -> str:
    """Return the preferred provider of a medium."""
    return next(name for name, its in providers().items() if its == medium)


@dataclass(frozen=True)
class IOCase(Case):
    """A transfer over a medium (None: any). With `gpu` it starts on a GPU, and ends in `there`.

    `depth` batches are pending at a time; `copy_blocks` GPU blocks copy (None: default).
    """

    medium: str | None = None
    gpu: bool = False
    there: str = "host"
    copy_blocks: int | None = None
    depth: int = 1
    pool: int = POOL_BYTES

    @property
    def block(self) -> int:
        return max(self.size, GRANULE)

    @property
    def point(self) -> Point:
        line = f"{self.copy_blocks} GPU blocks" if self.copy_blocks else "read" if self.read else "write"
        return Point("size of a block", self.size, line) if self.kind == "blocks" else Point()

    @property
    def batches(self) -> int:
        """How many batches of distinct blocks a sample has."""
        return max(1, min(_MOST_BATCHES, self.pool // self.bytes)) if self.gpu else 1

    @property
    def blocks(self) -> int:
        """How many blocks a side has."""
        return self.entries * self.batches if self.gpu else BUFFER_BYTES // self.block

    @property
    def rounds(self) -> int:
        """How often a sample repeats its batches."""
        return max(1, _BATCHES // self.batches) if self.gpu else int(self.times)

    def quick(self) -> IOCase:
        """Return the case with little work."""
        if not self.gpu:
            return replace(self, times=self.times / 10 if self.kind == "idle" else max(1, self.times // 50))
        size, entries = min(self.size, MIB), self.entries
        entries = max(2, entries // _QUICK) if entries > 1 else 1
        return replace(self, size=size, entries=entries, pool=4 * size * entries)


# Targets of a medium: the ratio of large blocks and of small blocks to the yardstick, the latency.
_TARGETS = {
    "memory": (0.95, 0.90, at_most(6, "us")),
    "nic": (0.90, 0.80, at_most(1.5)),
    "socket": (0.90, 0.70, at_most(1.5)),
}


@functools.cache
def host_cases() -> list[IOCase]:
    """Return the cases of each registered provider of host memory, and those that run on any."""
    cases = []
    for name, medium in providers().items():
        if medium not in _TARGETS:
            continue
        big, few, latency = _TARGETS[medium]
        move = partial(IOCase, path=name, medium=medium)
        for suffix, read in (("", False), ("-read", True)):
            for entries, size, label, bound in ((128, MIB, "128x1MiB", big), (1024, 4 * KIB, "1024x4KiB", few)):
                times = min(64, _STREAM_BYTES // (entries * size))
                shape: dict[str, Any] = {"entries": entries, "size": size, "read": read, "target": at_least(bound)}
                cases.append(move(f"{name}-{label}{suffix}", "stream", "GB/s", times=times, **shape))
        for suffix, read in (("", False), ("-read", True)):
            cases.append(
                move(f"{name}-8B-latency{suffix}", "latency", "us", size=8, read=read, target=latency, times=1000)
            )
    return [
        *cases,
        IOCase("submit-1000-lists", "submit", "us", entries=1000, size=4 * KIB, target=at_most(60, "us"), times=25),
        IOCase("status-poll", "poll", "ns", target=at_most(150, "ns"), times=200_000),
        IOCase("idle-cpu", "idle", "% of a core", target=at_most(1, "% of a core")),
        IOCase("million-small-leak", "leak", "KiB", None, 1_000_000, 64, False, at_most(8192, "KiB"), times=1_000_000),
    ]


def _gpu_case(
    name: str, kind: str, entries: int, size: int, target: Target, predicted: str, **more: Any
) -> IOCase:
    facts = {"unit": "GB/s", "medium": "gpu", "there": "gpu", "depth": 4 if kind == "blocks" else 1, **more}
    return IOCase(
        f"gpu-{name}", kind, entries=entries, size=size, target=target, predicted=predicted, gpu=True, **facts
    )


_FAST, _FEWER = (Target("value", ">=", bound, "GB/s") for bound in (300, 280))
_WHOLE, _HOST = at_least(0.95), at_least(0.9)
GPU_CASES = (
    _gpu_case("8192x4KiB", "blocks", 8192, 4 * KIB, _FAST, "325 GB/s"),
    _gpu_case("8192x4KiB-read", "blocks", 8192, 4 * KIB, _FAST, "325 GB/s", read=True),
    _gpu_case("8192x4KiB-8blocks", "blocks", 8192, 4 * KIB, _FEWER, "300 GB/s", copy_blocks=8),
    _gpu_case("8192x16KiB", "blocks", 8192, 16 * KIB, _FAST, "357 GB/s"),
    _gpu_case("4096x64KiB", "blocks", 4096, 64 * KIB, _WHOLE, "363 GB/s"),
    _gpu_case("1024x256KiB", "blocks", 1024, 256 * KIB, _WHOLE, "363 GB/s"),
    _gpu_case("64x16MiB", "blocks", 64, 16 * MIB, _WHOLE, "385 GB/s"),
    _gpu_case("4KiB-latency", "latency", 1, 4 * KIB, at_most(15, "us"), "14 us", unit="us"),
    _gpu_case("tcp-64MiB", "tcp", 1, 64 * MIB, at_least(0.85), "0.87 x raw", medium="socket"),
    _gpu_case("host-64MiB", "host", 1, 64 * MIB, _HOST, "52 GB/s", there="host"),
    _gpu_case("host-64MiB-read", "host", 1, 64 * MIB, _HOST, "52 GB/s", there="host", read=True),
)


def names() -> list[list[str]]:
    """Return the names of the cases on host memory and on GPUs."""
    return [[case.name for case in cases] for cases in (host_cases(), GPU_CASES)]


def choose(names: str | None, path: str | None) -> list[IOCase]:
    """Return the host cases of a comma-separated list that run on a path, or all.

    Few machines have RDMA devices, so their cases must be asked for. Raises ValueError for unknown names.
    """
    wanted = [case for case in pick(host_cases(), names) if names or path or case.medium != "nic"]
    chosen = [case for case in wanted if path is None or case.path in (None, path)]
    if not chosen:
        raise ValueError(f"none of {', '.join(case.name for case in wanted)} runs on path {path}")
    return chosen


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path",
        choices=[name for name, medium in providers().items() if medium in _TARGETS],
        help="only this path; path-free cases run on it (default shm and tcp)",
    )
    parser.add_argument(
        "--no-notifications",
        dest="notifications",
        action="store_false",
        help="engines as vLLM and SGLang configure them: transfers do not notify the target (default: they do)",
    )


class IO(Suite):
    """This process's side, a spawned other side, and the session between them for each case.

    Raises ValueError for bad arguments and Unavailable without a GPU.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._path, self._notifications = args.path, args.notifications
        self._gpus: gpus.GPUs | None = None
        self.raw: device.DeviceMemory | device.HostMemory | None = None
        compared = "every transferred byte is compared"
        if args.device == "host":
            how = ["raw limits take turns with the transfers", compared]
            how += [] if args.notifications else ["without notifications"]
            facts = {"notifications": args.notifications}
            super().__init__(choose(args.cases, args.path), how, facts, args.quick)
            return
        if args.path is not None:
            raise ValueError("--path is for host memory; with --device gpu each case has its path")
        cases = pick(GPU_CASES, args.cases)
        self._gpus, self._notifications = gpus.choose(args.gpus), False
        size = "few blocks" if args.quick else f"blocks of {cases[0].pool >> 20} MiB and more take turns"
        how = [*self._gpus.how(), "transfers by the clock of their caller, memcpy by events", size, compared]
        super().__init__(cases, how, {"quick": args.quick}, args.quick)

    def start(self) -> None:
        self._pair = self._gpus.pair if self._gpus else (-1, -1)
        self.here, self.there = Side(self._pair[0]), self.enter_context(Remote("bench-peer", Side, self._pair[1]))
        self.sides = Services(Local(self.here), self.there)
        self.push(self._clear)
        if self._gpus:
            self.copies = driver.Copies(*self._pair)
        tcp.connect(*self.sides.all)

    def _clear(self, *failure: Any) -> None:
        self.here.drop()
        if not any(failure):  # else the other side may be in a call
            self.there.call("drop")
        if self.raw is not None:
            self.raw.close()
        self.raw = None

    def plan(self, case: IOCase) -> tuple[str, Plan]:
        path = case.path or self._path or provider(case.medium or "memory")
        self._clear()
        try:
            facts = self._open(case, path)
        except (RemoteError, MoriError) as err:
            if isinstance(err, RemoteError) and not err.trace:  # the process is gone
                raise
            raise Unavailable(str(err)) from err
        transport, _, how = facts["path"].partition("/")
        if transport != path or (how == "stream" and providers()[path] == "memory"):
            why = "; ".join(facts["reasons"])
            raise Unavailable(f"the session runs on {facts['path']}, not on {path}: {why}")
        self.ends(case)[0].call("blocks.fill")
        plan = _PLANS[case.kind](self, case)
        if self._gpus is None:
            return path, plan
        plan.extra.update(self._gpus.facts(2 if case.there == "gpu" else 1), link=facts["link"])
        return facts["path"], plan

    def _open(self, case: IOCase, path: str) -> dict[str, Any]:
        """Make the blocks and a session, and return what describes it."""
        medium = providers()[path]
        self.here.make("gpu" if case.gpu else "host", case.block, case.blocks)
        self.there.call("make", case.there, case.block, case.blocks)
        if case.medium == "gpu":
            first, second = self._pair
            kind, gpu = (device.DeviceMemory, second) if case.there == "gpu" else (device.HostMemory, first)
            self.raw = kind(case.block * case.blocks, gpu)
        backend = "TCP" if medium == "socket" else "XGMI" if case.there == "gpu" else "RDMA"
        only = f"{path},{provider('socket')}" if medium == "nic" else None
        with environment(MORI_P2P_BLOCKS=None if case.copy_blocks is None else str(case.copy_blocks)):
            card = self.there.call("open", backend, only, self._notifications)
            self.there.call("connect", self.here.open(backend, only, self._notifications))
            self.here.connect(card)
            [self.session] = self.here.sessions()
        facts: dict[str, Any] = self.session.describe()
        return facts

    def ends(self, case: IOCase) -> tuple[Local, Local]:
        """Return the source's and the destination's side."""
        here, there = self.sides.all
        return (there, here) if case.read else (here, there)

    def once(self) -> TransferStatus:
        """Write a granule."""
        status = self.session.write(0, 0, GRANULE, self.session.allocate_transfer_uid())
        finish(status)
        return status

    def move(self, case: IOCase, here: int, there: int, size: int) -> driver.Move:
        """Return the copy between this side's blocks and the yardstick's memory."""
        assert self.raw is not None
        mine, other = self.here.blocks.address + here, self.raw.ptr + there
        return (mine, other, size) if case.read else (other, mine, size)


class Order:
    """Batches of the blocks of both sides, in two random orders, so that nothing is merged."""

    def __init__(self, suite: IO, case: IOCase) -> None:
        rng, count = random.Random(case.name), case.entries * case.batches
        self.here, self.there = ([i * case.block for i in rng.sample(range(case.blocks), count)] for _ in range(2))
        numbers: Callable[[list[int]], Any] = partial(array, "Q") if case.gpu else list
        self.sizes = numbers([case.size] * case.entries)
        cuts = [slice(first, first + case.entries) for first in range(0, count, case.entries)]
        self.batches = [(numbers(self.here[cut]), numbers(self.there[cut])) for cut in cuts]
        source, to = (self.there, self.here) if case.read else (self.here, self.there)
        call = suite.ends(case)[1].call
        self.wipe: Callable[[], None] = partial(call, "blocks.wipe", to, case.size)
        self.wrong: Callable[[], int] = partial(call, "wrong", to, source, case.size)


def blocks(suite: IO, case: IOCase) -> Plan:
    """Batches of random blocks, `depth` pending: GB/s; for more than one also one at a time."""
    order, session, clock = Order(suite, case), suite.session, time.perf_counter
    post = session.batch_read if case.read else session.batch_write
    extra: dict[str, object] = {"depth": case.depth, "block": case.size} if case.gpu else {}
    alone: list[float] = []
    submit: list[float] = []

    def start(batch: tuple[Any, Any]) -> TransferStatus:
        return post(*batch, order.sizes, session.allocate_transfer_uid())

    def one_by_one() -> None:
        for batch in order.batches:
            begin = clock()
            status = start(batch)
            submitted = clock()
            finish(status)
            alone.append(case.bytes / (clock() - begin) / 1e9)
            submit.append((submitted - begin) * 1e6)
        extra.update(alone=short(statistics.median(alone)), submit_us=short(statistics.median(submit)))

    def ours() -> float:
        begin = clock()
        in_flight(map(start, itertools.chain.from_iterable([order.batches] * case.rounds)), case.depth)
        seconds = clock() - begin
        if case.depth > 1:
            one_by_one()
        return case.rounds * case.batches * case.bytes / seconds / 1e9

    raws = _stream_yardsticks(suite, case, order)
    primary = None if case.medium == "socket" else next(iter(raws), None)
    return Plan(ours, raws, order.wipe, order.wrong, primary, extra=extra)


def _stream_yardsticks(suite: IO, case: IOCase, order: Order) -> dict[str, Turn]:
    """Return turns that move the same bytes the same way, first the one to compare with."""
    if case.medium == "nic":
        return perftest.streams(suite.session, case, case.rounds)
    if case.medium == "socket":
        return tcp.streams(*suite.ends(case), case.bytes, case.rounds * case.batches)
    if case.medium == "memory":
        suite.here.prepare_copies(order.here, order.there, case.size)
        suite.there.call("prepare_copies", order.there, order.here, case.size)
        return process_vm.streams(*suite.ends(case), case.bytes, case.rounds)
    starts = range(0, case.batches * case.bytes, case.bytes)
    whole = suite.copies.stream([suite.move(case, at, at, case.bytes) for at in starts] * case.rounds)
    if case.kind == "host":
        return {"pinned memcpy": whole}
    pairs = zip(*order.batches[0], strict=True)
    each = [suite.move(case, here, there, case.size) for here, there in pairs]
    return {"memcpy": whole, "memcpy each": suite.copies.stream(each)}


def latency(suite: IO, case: IOCase) -> Plan:
    """One block and its Wait at a time, on a GPU each time another block: median microseconds."""
    order, session, pings = Order(suite, case), suite.session, int(case.times)
    transfer = session.read if case.read else session.write
    pairs = [(here[0], there[0]) for here, there in order.batches] * (1 if case.gpu else pings)
    left: list[tuple[int, int, int, int]] = []
    status = TransferStatus()

    def once() -> None:
        nonlocal status
        status = transfer(*left.pop())
        status.Wait()

    def ours() -> float:
        left.extend((here, there, case.size, session.allocate_transfer_uid()) for here, there in pairs)
        figure = median_us(once, len(pairs))
        finish(status)
        return figure

    raws: dict[str, Turn]
    if case.medium == "nic":
        raws = perftest.latency(session, case, pings)
    elif case.medium == "socket":
        raws = {"ping-pong": lambda: tcp.ping_pong(suite.here.tcp, suite.there, pings)}
    elif case.medium == "memory":
        suite.here.prepare_copies(order.here, order.there, case.size)
        [copies], way = suite.here.copies, "read" if case.read else "write"
        raws = {f"process_vm_{way}v": lambda: median_us(getattr(copies, way), pings)}
    else:
        moves = [suite.move(case, here, there, case.size) for here, there in pairs]
        raws = {"memcpy and wait": lambda: suite.copies.latency_us(moves)}
    return Plan(ours, raws, order.wipe, order.wrong)


def submit(suite: IO, case: IOCase) -> Plan:
    """How long batch_write with Python lists blocks its caller: median microseconds."""
    order, session, times = Order(suite, case), suite.session, int(case.times)
    [lists] = order.batches

    def ours() -> float:
        spent = []
        for _ in range(times):
            uid = session.allocate_transfer_uid()
            start = time.perf_counter_ns()
            status = session.batch_write(*lists, order.sizes, uid)
            spent.append(time.perf_counter_ns() - start)
            finish(status)
        return statistics.median(spent) / 1e3

    def convert() -> None:
        for numbers in (*lists, order.sizes):
            array("Q", numbers)

    return Plan(ours, {"three array('Q')": lambda: median_us(convert, times)}, order.wipe, order.wrong)


def poll(suite: IO, case: IOCase) -> Plan:
    """One status.Succeeded(), with its look-up: nanoseconds. The yardstick is a str's method."""
    status, polls = suite.once(), int(case.times)

    def calls(thing: object, method: str) -> float:
        return timeit.Timer(f"thing.{method}()", globals={"thing": thing}).timeit(polls) / polls * 1e9

    return Plan(lambda: calls(status, "Succeeded"), {"str.isdigit": lambda: calls("x", "isdigit")})


def idle(suite: IO, case: IOCase) -> Plan:
    """Two connected engines with nothing to do: per cent of a core that the busier process uses."""
    suite.once()

    def ours() -> float:
        before, start = suite.sides.each("usage"), time.perf_counter()
        time.sleep(case.times)
        after, spent = suite.sides.each("usage"), time.perf_counter() - start
        return max(100 * float(b.cpu_s - a.cpu_s) / spent for a, b in zip(before, after, strict=True))

    return Plan(ours, repeats=5)


def leak(suite: IO, case: IOCase) -> Plan:
    """The growth of either process's resident memory over many small transfers: KiB.

    The warm-up makes as many transfers, so only unbounded growth shows.
    """
    session, count = suite.session, int(case.times)
    extra: dict[str, object] = {"transfers": count}

    def write(i: int) -> TransferStatus:
        offset = i % 1024 * case.size
        return session.write(offset, offset, case.size, session.allocate_transfer_uid())

    def ours() -> float:
        before, start = suite.sides.each("usage"), time.perf_counter()
        in_flight(map(write, range(count)), 64)
        extra["transfers_per_s"] = round(count / (time.perf_counter() - start))
        pairs = list(zip(before, suite.sides.each("usage"), strict=True))
        extra["threads_grown"] = [b.threads - a.threads for a, b in pairs]
        extra["fds_grown"] = [b.fds - a.fds for a, b in pairs]
        return max(0.0, *(float(b.rss - a.rss) / 1024 for a, b in pairs))

    return Plan(ours, repeats=1, extra=extra)


_PLANS: dict[str, Callable[[IO, IOCase], Plan]] = {
    **dict.fromkeys(("stream", "blocks", "tcp", "host"), blocks),
    "latency": latency,
    "submit": submit,
    "poll": poll,
    "idle": idle,
    "leak": leak,
}


suite = IO
