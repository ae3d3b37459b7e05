# SPDX-License-Identifier: MIT
"""Plans of the cases that move blocks: streams, single words, and the cost of submitting."""

from __future__ import annotations

import random
import statistics
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import Literal

from mori.cpp import TransferStatus

from . import raw_tcp, raw_verbs
from .cases import BUFFER_BYTES, MIB, Case
from .measure import Plan, Turn
from .process import Remote
from .raw_cma import IOV_MAX
from .raw_side import EngineSide
from .rig import Rig
from .side import GRANULE


class TransferFailed(RuntimeError):
    """A transfer of the benchmark ended with an error."""


def demand_success(case: Case, status: TransferStatus) -> None:
    if not status.Succeeded():
        raise TransferFailed(f"{case.name}: {status.Code()}: {status.Message()}")


class _Blocks:
    """Distinct blocks in two random orders, so that nothing can be merged, and what guards their bytes."""

    def __init__(self, rig: Rig, case: Case) -> None:
        self._rig, self._case = rig, case
        rng = random.Random(case.name)
        step = max(case.size, GRANULE)
        slots = range(BUFFER_BYTES // step)
        self.here = [i * step for i in rng.sample(slots, case.entries)]
        self.there = [i * step for i in rng.sample(slots, case.entries)]
        self.sizes = [case.size] * case.entries
        rig.source_holds_pattern(read=case.read)

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


def stream(rig: Rig, case: Case) -> Plan:
    """Whole batches, one after the other: GB/s."""
    blocks, session, rounds = _Blocks(rig, case), rig.session, rig.effort.rounds(case.bytes)
    batch = session.batch_read if case.read else session.batch_write

    def ours() -> float:
        start = time.perf_counter()
        for _ in range(rounds):
            status = batch(blocks.here, blocks.there, blocks.sizes, session.allocate_transfer_uid())
            status.Wait()
            demand_success(case, status)
        return rounds * case.bytes / (time.perf_counter() - start) / 1e9

    if case.path == "verbs":
        return Plan(ours, raw_verbs.streams(rig.session, case, rounds), blocks.wipe, blocks.wrong, max)
    if case.path == "tcp":
        return Plan(ours, tcp_streams(rig.here, rig.there, case, rounds), blocks.wipe, blocks.wrong, max)
    return Plan(ours, _cma_loops(rig, case, blocks, rounds), blocks.wipe, blocks.wrong, max, "process_vm_readv")


def _cma_loops(rig: Rig, case: Case, blocks: _Blocks, rounds: int) -> dict[str, Turn]:
    """The same blocks in the same direction, pulled by the process that receives or pushed by the one that sends."""
    per_call = IOV_MAX if case.size < MIB else 1
    pid, base = rig.here.where()
    rig.here.raw_prepare(rig.pid, rig.base, blocks.here, blocks.there, case.size, per_call)
    rig.there.call("raw_prepare", pid, base, blocks.there, blocks.here, case.size, per_call)

    def turn(at_home: bool, way: Literal["read", "write"]) -> Turn:
        def copy() -> float:
            seconds = rig.here.raw_copy(way, rounds) if at_home else rig.there.call("raw_copy", way, rounds)
            return case.bytes / seconds / 1e9

        return copy

    return {"process_vm_readv": turn(case.read, "read"), "process_vm_writev": turn(not case.read, "write")}


def tcp_streams(here: EngineSide, there: Remote, case: Case, rounds: int) -> dict[str, Turn]:
    """As many bytes in the same direction between the host memories of both sides: GB/s."""

    def turn(n: int) -> Turn:
        def flow() -> float:
            there.begin("raw_send" if case.read else "raw_receive", n, case.bytes, rounds)
            there.event()
            mine = here.raw_receive if case.read else here.raw_send
            start = time.perf_counter()
            deque(mine(n, case.bytes, rounds), maxlen=0)
            seconds = time.perf_counter() - start
            there.result()
            return rounds * case.bytes / seconds / 1e9

        return flow

    return {f"{n} connection{'s' * (n > 1)}": turn(n) for n in raw_tcp.CONNECTIONS}


def latency(rig: Rig, case: Case) -> Plan:
    """One small transfer and its Wait at a time: median microseconds."""
    blocks, session, pings = _Blocks(rig, case), rig.session, rig.effort.pings
    transfer, here, there = session.read if case.read else session.write, blocks.here[0], blocks.there[0]
    uids: list[int] = []

    def once() -> None:
        transfer(here, there, case.size, uids.pop()).Wait()

    def ours() -> float:
        uids.extend(session.allocate_transfer_uid() for _ in range(pings))
        return median_us(once, pings)

    if case.path == "verbs":
        return Plan(ours, raw_verbs.latency(rig.session, case, pings), blocks.wipe, blocks.wrong, min)
    if case.path == "tcp":
        return Plan(ours, {"ping-pong": lambda: _ping_pong(rig)}, blocks.wipe, blocks.wrong, min)
    rig.here.raw_prepare(rig.pid, rig.base, blocks.here, blocks.there, case.size, 1)
    way: Literal["read", "write"] = "read" if case.read else "write"
    raw = {f"process_vm_{way}v": lambda: median_us(rig.here.raw_copier(way), pings)}
    return Plan(ours, raw, blocks.wipe, blocks.wrong, min)


def _ping_pong(rig: Rig) -> float:
    pings = rig.effort.pings
    rig.there.begin("raw_pong", pings)
    rig.there.event()
    figure = median_us(rig.here.raw_ping, pings)
    rig.there.result()
    return figure


def submit(rig: Rig, case: Case) -> Plan:
    """How long batch_write with Python lists keeps its caller: median microseconds until it returns."""
    blocks, session, times = _Blocks(rig, case), rig.session, rig.effort.submits

    def ours() -> float:
        spent = []
        for _ in range(times):
            uid = session.allocate_transfer_uid()
            start = time.perf_counter_ns()
            status = session.batch_write(blocks.here, blocks.there, blocks.sizes, uid)
            spent.append(time.perf_counter_ns() - start)
            status.Wait()
            demand_success(case, status)
        return statistics.median(spent) / 1e3

    def convert() -> None:
        for numbers in (blocks.here, blocks.there, blocks.sizes):
            array("Q", numbers)

    return Plan(ours, {"three array('Q')": lambda: median_us(convert, times)}, blocks.wipe, blocks.wrong, min)


def median_us(call: Callable[[], object], times: int) -> float:
    clock, spent = time.perf_counter_ns, []
    for _ in range(times):
        start = clock()
        call()
        spent.append(clock() - start)
    return statistics.median(spent) / 1e3
