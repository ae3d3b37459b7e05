# SPDX-License-Identifier: MIT
"""`mori bench io`: transfers of mori.io between two processes, in host or GPU memory."""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
import timeit
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mori import device
from mori._errors import MoriError
from mori.cpp import TransferStatus
from mori.io import IOEngineSession

from . import gpus
from .gpus import L2_BYTES, GPUs
from .harness import (
    KIB,
    MIB,
    Case,
    PathUnavailable,
    Plan,
    Suite,
    Target,
    TransferFailed,
    Turn,
    at_least,
    at_most,
    median_us,
    pick,
    short,
)
from .io_side import GRANULE, Pool, Side, Usage, environment
from .process import Remote, RemoteError
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


@dataclass(frozen=True)
class IOCase(Case):
    """A transfer. With `gpu` it starts on a GPU and ends on a GPU, or in host memory if `there` says so.

    `depth` batches are pending at a time; `copy_blocks` is the number of GPU blocks that copy (None: default).
    """

    gpu: bool = False
    there: str = "host"
    copy_blocks: int | None = None
    depth: int = 1
    pool: int = POOL_BYTES

    @property
    def block(self) -> int:
        return max(self.size, GRANULE)

    @property
    def batches(self) -> int:
        """How many batches of distinct blocks a sample has."""
        return max(1, min(_MOST_BATCHES, self.pool // self.bytes)) if self.gpu else 1

    @property
    def blocks(self) -> int:
        """How many blocks a side has."""
        return self.entries * self.batches if self.gpu else BUFFER_BYTES // self.block

    def quick(self) -> IOCase:
        """Return the case with little work."""
        size, entries = min(self.size, MIB), self.entries
        entries = max(2, entries // _QUICK) if entries > 1 else 1
        return replace(self, size=size, entries=entries, pool=4 * size * entries)


def _host_cases() -> Iterator[IOCase]:
    latency: dict[str, Target] = {"shm": at_most(6, "us"), "verbs": at_most(1.5), "tcp": at_most(1.5)}
    for path, big, few in (("shm", 0.95, 0.90), ("verbs", 0.90, 0.80), ("tcp", 0.90, 0.70)):
        for suffix, read in (("", False), ("-read", True)):
            for entries, size, label, bound in ((128, MIB, "128x1MiB", big), (1024, 4 * KIB, "1024x4KiB", few)):
                yield IOCase(f"{path}-{label}{suffix}", "stream", "GB/s", path, entries, size, read, at_least(bound))
        for suffix, read in (("", False), ("-read", True)):
            yield IOCase(f"{path}-8B-latency{suffix}", "latency", "us", path, 1, 8, read, latency[path])
    yield IOCase("submit-1000-lists", "submit", "us", None, 1000, 4 * KIB, False, at_most(60, "us"))
    yield IOCase("status-poll", "poll", "ns", target=at_most(150, "ns"))
    yield IOCase("idle-cpu", "idle", "% of a core", target=at_most(1, "% of a core"))
    yield IOCase("million-small-leak", "leak", "KiB", None, 1_000_000, 64, False, at_most(8192, "KiB"))


def _gpu_cases() -> Iterator[IOCase]:
    def case(name: str, kind: str, size: int, target: Target, predicted: str, **more: Any) -> IOCase:
        one = IOCase(f"gpu-{name}", kind, "GB/s", "p2p", 1, size, False, target, predicted, gpu=True, there="gpu")
        return replace(one, **more)

    fast, whole, host = Target("value", ">=", 300, "GB/s"), at_least(0.95), at_least(0.9)
    batch = {"depth": 4, "entries": 8192}
    yield case("8192x4KiB", "blocks", 4 * KIB, fast, "325 GB/s", **batch)
    yield case("8192x4KiB-read", "blocks", 4 * KIB, fast, "325 GB/s", read=True, **batch)
    few = Target("value", ">=", 280, "GB/s")
    yield case("8192x4KiB-8blocks", "blocks", 4 * KIB, few, "300 GB/s", copy_blocks=8, **batch)
    yield case("8192x16KiB", "blocks", 16 * KIB, fast, "357 GB/s", **batch)
    yield case("4096x64KiB", "blocks", 64 * KIB, whole, "363 GB/s", depth=4, entries=4096)
    yield case("1024x256KiB", "blocks", 256 * KIB, whole, "363 GB/s", depth=4, entries=1024)
    yield case("64x16MiB", "blocks", 16 * MIB, whole, "385 GB/s", depth=4, entries=64)
    yield case("4KiB-latency", "latency", 4 * KIB, at_most(15, "us"), "14 us", unit="us")
    yield case("tcp-64MiB", "tcp", 64 * MIB, at_least(0.85), "0.87 x raw", path="tcp")
    yield case("host-64MiB", "host", 64 * MIB, host, "52 GB/s", there="host")
    yield case("host-64MiB-read", "host", 64 * MIB, host, "52 GB/s", there="host", read=True)


CASES = tuple(_host_cases())
GPU_CASES = tuple(_gpu_cases())
NAMES, GPU_NAMES = [case.name for case in CASES], [case.name for case in GPU_CASES]


def choose(names: str | None, path: str | None) -> list[IOCase]:
    """Return the host cases of a comma-separated list that run on a path, or all.

    Few machines have RDMA devices, so their cases must be asked for. Raises ValueError for unknown names.
    """
    wanted = [case for case in pick(CASES, names) if names or path or case.path != "verbs"]
    chosen = [case for case in wanted if path is None or case.path in (None, path)]
    if not chosen:
        raise ValueError(f"none of {', '.join(case.name for case in wanted)} runs on path {path}")
    return chosen


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path",
        choices=["shm", "verbs", "tcp"],
        help="only this path; path-free cases run on it (default shm and tcp)",
    )
    parser.add_argument(
        "--no-notifications",
        dest="notifications",
        action="store_false",
        help="engines as vLLM and SGLang configure them: transfers do not notify the target (default: they do)",
    )


class IO(Suite):
    """The cases of the selected memory. Raises ValueError for bad arguments and Unavailable without
    a GPU.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._path, self._gpus, notifications = args.path or "shm", None, args.notifications
        turns = "every transferred byte is compared"
        if args.device == "gpu":
            if args.path is not None:
                raise ValueError("--path is for host memory; with --device gpu each case has its path")
            cases = pick(GPU_CASES, args.cases)
            self._gpus, notifications = gpus.choose(args.gpus), False
            size = f"blocks of {cases[0].pool >> 20} MiB and more take turns" if not args.quick else "few blocks"
            how = [*self._gpus.how(), "transfers by the clock of their caller, memcpy by events", size, turns]
            cases = [case.quick() for case in cases] if args.quick else cases
            super().__init__(cases, how, {"quick": args.quick})
        else:
            how = ["raw limits take turns with the transfers", turns]
            how += [] if args.notifications else ["without notifications"]
            super().__init__(choose(args.cases, args.path), how, {"notifications": notifications})
        self._effort = Effort(MIB, 20, 3, 2_000, 0.1, 5_000) if args.quick else Effort()
        self._notifications = notifications

    def start(self) -> None:
        self._rig = self.enter_context(Rig(self._gpus, self._effort, self._notifications))

    def plan(self, case: IOCase) -> tuple[str, Plan]:
        path = case.path or self._path
        self._rig.use(case, path)
        plan = _PLANS[case.kind](self._rig, case)
        if self._gpus is None:
            return path, plan
        plan.extra.update(self._gpus.facts(2 if case.there == "gpu" else 1), link=self._rig.link)
        return self._rig.path, plan


@dataclass(frozen=True)
class Effort:
    """How much work one sample of a host case does."""

    stream_bytes: int = 256 * MIB
    pings: int = 1000
    submits: int = 25
    polls: int = 200_000
    idle_s: float = 1.0
    most: int = 1_000_000

    def rounds(self, case: IOCase) -> int:
        """Return how often a sample repeats its batches."""
        if case.gpu:
            return max(1, _BATCHES // case.batches)
        return max(1, min(64, self.stream_bytes // case.bytes))


class Rig:
    """This process's side, a spawned other side, and the session between them, for one case at a
    time.
    """

    session: IOEngineSession

    def __init__(self, selected: GPUs | None, effort: Effort, notifications: bool = True) -> None:
        self.effort, self._notifications = effort, notifications
        self._pair = selected.pair if selected else (-1, -1)
        self.here = Side(self._pair[0])
        self.there = Remote("bench-peer", f"{Side.__module__}:{Side.__name__}", self._pair[1])
        self.raw: device.DeviceMemory | device.HostMemory | None = None
        self.path = self.link = ""
        try:
            self.copies = driver.Copies(*self._pair) if selected else None
            tcp.connect(self.here.tcp, self.there)
        except BaseException:
            self.there.close()
            raise

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *failure: Any) -> None:
        try:
            self._clear(remote=failure[0] is None)  # after a failure the other side may be in a call
        finally:
            self.there.__exit__(*failure)

    def _clear(self, remote: bool = True) -> None:
        self.here.drop()
        if remote:
            self.there.call("drop")
        if self.raw is not None:
            self.raw.close()
        self.raw = None

    def use(self, case: IOCase, path: str) -> None:
        """Make the blocks and a session for a case. Raises PathUnavailable if either process
        cannot.
        """
        self._clear()
        try:
            self._open(case, path)
        except RemoteError as err:
            if not err.trace:  # the process is gone
                raise
            raise PathUnavailable(str(err)) from err
        except MoriError as err:
            raise PathUnavailable(str(err)) from err

    def _open(self, case: IOCase, path: str) -> None:
        self.own = self.here.make(Pool("gpu" if case.gpu else "host", case.block, case.blocks))
        pool = Pool(case.there, case.block, case.blocks)
        self.pid, self.address = self.there.call("make", pool)
        if case.gpu and path != "tcp":
            first, second = self._pair
            kind, gpu = (device.DeviceMemory, second) if case.there == "gpu" else (device.HostMemory, first)
            self.raw = kind(pool.bytes, gpu)
        backend = "TCP" if path == "tcp" else "XGMI" if case.there == "gpu" else "RDMA"
        with environment(MORI_P2P_BLOCKS=None if case.copy_blocks is None else str(case.copy_blocks)):
            card = self.there.call("open", backend, path, self._notifications)
            self.there.call("add_peer", self.here.open(backend, path, self._notifications))
            self.here.add_peer(card)
            self.session = self.here.session(card)
        facts = self.session.describe()
        self.path, self.link = facts["path"], facts["link"]
        transport, _, how = self.path.partition("/")
        if transport != path or (path == "shm" and how == "stream"):
            raise PathUnavailable(f"the session runs on {self.path}, not on {path}: {'; '.join(facts['reasons'])}")
        if case.read:
            self.there.call("fill")
        else:
            self.here.fill()

    def usages(self) -> tuple[Usage, Usage]:
        return self.here.usage(), self.there.call("usage")


class Blocks:
    """The blocks of both sides in two random orders, so that nothing can be merged, cut into
    batches.
    """

    def __init__(self, rig: Rig, case: IOCase) -> None:
        self._rig, self._case = rig, case
        rng, count = random.Random(case.name), case.entries * case.batches
        self.here, self.there = ([i * case.block for i in rng.sample(range(case.blocks), count)] for _ in range(2))
        numbers: Callable[[list[int]], Any] = (lambda some: array("Q", some)) if case.gpu else list
        self.sizes = numbers([case.size] * case.entries)
        cuts = [slice(first, first + case.entries) for first in range(0, count, case.entries)]
        self.batches = [(numbers(self.here[cut]), numbers(self.there[cut])) for cut in cuts]

    def wipe(self) -> None:
        if self._case.read:
            self._rig.here.wipe(self.here, self._case.size)
        else:
            self._rig.there.call("wipe", self.there, self._case.size)

    def wrong(self) -> int:
        if self._case.read:
            return self._rig.here.wrong(self.here, self.there, self._case.size)
        wrong: int = self._rig.there.call("wrong", self.there, self.here, self._case.size)
        return wrong


def check(case: Case, status: TransferStatus) -> None:
    if not status.Succeeded():
        raise TransferFailed(f"{case.name}: {status.Code()}: {status.Message()}")


def finish(case: Case, status: TransferStatus) -> None:
    status.Wait()
    check(case, status)


def blocks(rig: Rig, case: IOCase) -> Plan:
    """Batches of random blocks, `depth` pending at a time: GB/s; for more than one also one at a
    time.
    """
    order, session, clock, rounds = Blocks(rig, case), rig.session, time.perf_counter, rig.effort.rounds(case)
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
            finish(case, status)
            alone.append(case.bytes / (clock() - begin) / 1e9)
            submit.append((submitted - begin) * 1e6)
        extra.update(alone=short(statistics.median(alone)), submit_us=short(statistics.median(submit)))

    def ours() -> float:
        pending: deque[TransferStatus] = deque()
        begin = clock()
        for batch in itertools.chain.from_iterable([order.batches] * rounds):
            pending.append(start(batch))
            if len(pending) == case.depth:
                finish(case, pending.popleft())
        for status in pending:
            finish(case, status)
        seconds = clock() - begin
        if case.depth > 1:
            one_by_one()
        return rounds * case.batches * case.bytes / seconds / 1e9

    raws = _stream_yardsticks(rig, case, order, rounds)
    primary = next((name for name in ("process_vm_readv", "memcpy", "pinned memcpy") if name in raws), None)
    return Plan(ours, raws, order.wipe, order.wrong, max, primary, extra=extra)


def _stream_yardsticks(rig: Rig, case: IOCase, order: Blocks, rounds: int) -> dict[str, Turn]:
    """Return turns that move the same bytes in the same direction."""
    if case.path == "verbs":
        return perftest.streams(rig.session, case, rounds)
    if case.path == "tcp":
        return tcp.streams(rig.here.tcp, rig.there, case.bytes, rounds * case.batches, case.read)
    if case.gpu:
        whole = [_move(rig, case, i * case.bytes, i * case.bytes, case.bytes) for i in range(case.batches)] * rounds
        if case.kind == "host":
            return {"pinned memcpy": _memcpy(rig, whole)}
        each = [_move(rig, case, here, there, case.size) for here, there in zip(*order.batches[0], strict=True)]
        return {"memcpy": _memcpy(rig, whole), "memcpy each": _memcpy(rig, each)}
    per_call = process_vm.IOV_MAX if case.size < MIB else 1
    _prepare_copies(rig, order, case.size, per_call)
    rig.there.call("prepare_copies", *rig.own, order.there, order.here, case.size, per_call)

    def turn(local: bool, way: str) -> Turn:
        """The receiver pulls or the sender pushes, each in its own process."""

        def copy() -> float:
            assert rig.here.copies is not None
            call = rig.here.copies.seconds if local else lambda *args: rig.there.call("copies.seconds", *args)
            return case.bytes / float(call(way, rounds)) / 1e9

        return copy

    return {"process_vm_readv": turn(case.read, "read"), "process_vm_writev": turn(not case.read, "write")}


def _prepare_copies(rig: Rig, order: Blocks, size: int, per_call: int) -> None:
    rig.here.prepare_copies(rig.pid, rig.address, order.here, order.there, size, per_call)


def _move(rig: Rig, case: IOCase, here: int, there: int, size: int) -> driver.Move:
    """Return the copy between this side's blocks and the yardstick's memory."""
    assert rig.raw is not None
    mine, other = rig.here.address + here, rig.raw.ptr + there
    return (mine, other, size) if case.read else (other, mine, size)


def _memcpy(rig: Rig, moves: Sequence[driver.Move]) -> Turn:
    assert rig.copies is not None
    total, seconds = sum(size for _, _, size in moves), rig.copies.seconds
    return lambda: total / seconds(moves) / 1e9


def latency(rig: Rig, case: IOCase) -> Plan:
    """One block and its Wait at a time, on a GPU each time another block: median microseconds."""
    order, session = Blocks(rig, case), rig.session
    transfer, pings = session.read if case.read else session.write, rig.effort.pings
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
        check(case, status)
        return figure

    raws: dict[str, Turn]
    if case.gpu:
        assert rig.copies is not None
        memcpy, moves = rig.copies.latency_us, [_move(rig, case, here, there, case.size) for here, there in pairs]
        raws = {"memcpy and wait": lambda: memcpy(moves)}
    elif case.path == "verbs":
        raws = perftest.latency(session, case, pings)
    elif case.path == "tcp":
        raws = {"ping-pong": lambda: tcp.ping_pong(rig.here.tcp, rig.there, pings)}
    else:
        _prepare_copies(rig, order, case.size, 1)
        way = "read" if case.read else "write"
        raws = {f"process_vm_{way}v": lambda: median_us(getattr(rig.here.copies, way), pings)}
    return Plan(ours, raws, order.wipe, order.wrong, min)


def submit(rig: Rig, case: IOCase) -> Plan:
    """How long batch_write with Python lists keeps its caller: median microseconds until it
    returns.
    """
    order, session, times = Blocks(rig, case), rig.session, rig.effort.submits
    [lists] = order.batches

    def ours() -> float:
        spent = []
        for _ in range(times):
            uid = session.allocate_transfer_uid()
            start = time.perf_counter_ns()
            status = session.batch_write(*lists, order.sizes, uid)
            spent.append(time.perf_counter_ns() - start)
            finish(case, status)
        return statistics.median(spent) / 1e3

    def convert() -> None:
        for numbers in (*lists, order.sizes):
            array("Q", numbers)

    return Plan(ours, {"three array('Q')": lambda: median_us(convert, times)}, order.wipe, order.wrong, min)


def _transfer(rig: Rig, case: IOCase) -> TransferStatus:
    status = rig.session.write(0, 0, GRANULE, rig.session.allocate_transfer_uid())
    finish(case, status)
    return status


def poll(rig: Rig, case: IOCase) -> Plan:
    """One status.Succeeded(), its look-up included: nanoseconds. The yardstick is a method of str.
    """
    status, polls = _transfer(rig, case), rig.effort.polls

    def calls(thing: object, method: str) -> float:
        return timeit.Timer(f"thing.{method}()", globals={"thing": thing}).timeit(polls) / polls * 1e9

    return Plan(lambda: calls(status, "Succeeded"), {"str.isdigit": lambda: calls("x", "isdigit")}, best=min)


def idle(rig: Rig, case: IOCase) -> Plan:
    """Two processes with connected engines and nothing to do: per cent of a core that the busier
    one uses.
    """
    _transfer(rig, case)

    def ours() -> float:
        before, start = rig.usages(), time.perf_counter()
        time.sleep(rig.effort.idle_s)
        after, spent = rig.usages(), time.perf_counter() - start
        return max(100 * (b.cpu_s - a.cpu_s) / spent for a, b in zip(before, after, strict=True))

    return Plan(ours, repeats=5)


def leak(rig: Rig, case: IOCase) -> Plan:
    """The growth of either process's resident memory over many small transfers: KiB.

    The warm-up makes as many transfers, so only unbounded growth shows.
    """
    session, count = rig.session, min(case.entries, rig.effort.most)
    extra: dict[str, object] = {"transfers": count}

    def burst() -> None:
        pending: deque[TransferStatus] = deque()
        for i in range(count):
            offset = i % 1024 * case.size
            pending.append(session.write(offset, offset, case.size, session.allocate_transfer_uid()))
            if len(pending) == 64:
                finish(case, pending.popleft())
        for status in pending:
            finish(case, status)

    def ours() -> float:
        before, start = rig.usages(), time.perf_counter()
        burst()
        extra["transfers_per_s"] = round(count / (time.perf_counter() - start))
        pairs = list(zip(before, rig.usages(), strict=True))
        extra["threads_grown"] = [b.threads - a.threads for a, b in pairs]
        extra["fds_grown"] = [b.fds - a.fds for a, b in pairs]
        return max(0.0, *((b.rss - a.rss) / 1024 for a, b in pairs))

    return Plan(ours, repeats=1, extra=extra)


_PLANS: dict[str, Callable[[Rig, IOCase], Plan]] = {
    **dict.fromkeys(("stream", "blocks", "tcp", "host"), blocks),
    "latency": latency,
    "submit": submit,
    "poll": poll,
    "idle": idle,
    "leak": leak,
}


suite = IO
