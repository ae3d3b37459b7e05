# SPDX-License-Identifier: MIT
"""Plans of the cases that move blocks of a GPU through a session, called from Python."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from array import array
from collections import deque
from collections.abc import Callable

from mori.cpp import TransferStatus

from ..measure import Plan, Turn
from ..moves import demand_success, median_us, tcp_streams
from .cases import GPUCase
from .copies import Move
from .rig import GPURig


class _Blocks:
    """All blocks of both pools in two random orders, cut into batches, and what guards their bytes."""

    def __init__(self, rig: GPURig, case: GPUCase) -> None:
        self._rig, self._case = rig, case
        rng, count = random.Random(case.name), case.entries * case.batches
        self.here, self.there = rng.sample(range(count), count), rng.sample(range(count), count)
        self.sizes = array("Q", [case.size] * case.entries)
        cuts = range(0, count, case.entries)
        self.batches = [(self._offsets(self.here, cut), self._offsets(self.there, cut)) for cut in cuts]

    def _offsets(self, order: list[int], first: int) -> array[int]:
        return array("Q", [i * self._case.size for i in order[first : first + self._case.entries]])

    def wipe(self) -> None:
        if self._case.read:
            self._rig.here.wipe()
        else:
            self._rig.there.call("wipe")

    def wrong(self) -> int:
        """Looks at every byte of the pool that was written to."""
        to, source = (self.here, self.there) if self._case.read else (self.there, self.here)
        granules = [0] * len(to)
        for place, granule in zip(to, source, strict=True):
            granules[place] = granule
        if self._case.read:
            return self._rig.here.wrong(granules)
        wrong: int = self._rig.there.call("wrong", granules)
        return wrong


def blocks(rig: GPURig, case: GPUCase) -> Plan:
    """Batches of random blocks: GB/s. With `depth` of them under way at once, and, in extra, one at a time."""
    order, session, clock = _Blocks(rig, case), rig.session, time.perf_counter
    post = session.batch_read if case.read else session.batch_write
    alone: list[float] = []
    submit: list[float] = []
    extra: dict[str, object] = {"depth": case.depth, "block": case.size}

    def start(batch: tuple[array[int], array[int]]) -> TransferStatus:
        return post(*batch, order.sizes, session.allocate_transfer_uid())

    def finish(status: TransferStatus) -> None:
        status.Wait()
        demand_success(case, status)

    def one_by_one() -> None:
        for batch in order.batches:
            begin = clock()
            status = start(batch)
            submitted = clock()
            finish(status)
            alone.append(case.bytes / (clock() - begin) / 1e9)
            submit.append((submitted - begin) * 1e6)
        extra.update(alone=_short(alone), submit_us=_short(submit))

    def ours() -> float:
        under_way: deque[TransferStatus] = deque()
        begin = clock()
        for batch in itertools.chain.from_iterable([order.batches] * case.rounds):
            under_way.append(start(batch))
            if len(under_way) == case.depth:
                finish(under_way.popleft())
        for status in under_way:
            finish(status)
        seconds = clock() - begin
        if case.depth > 1:
            one_by_one()
        return case.rounds * case.batches * case.bytes / seconds / 1e9

    return Plan(ours, _raws(rig, case, order), order.wipe, order.wrong, max, _PRIMARY.get(case.kind), extra=extra)


_PRIMARY = {"blocks": "memcpy", "host": "pinned memcpy"}


def _short(samples: list[float]) -> float:
    return float(f"{statistics.median(samples):.5g}")


def _raws(rig: GPURig, case: GPUCase, order: _Blocks) -> dict[str, Turn]:
    if case.kind == "tcp":
        return tcp_streams(rig.here, rig.there, case, case.rounds * case.batches)
    whole = [_move(rig, case, i * case.bytes, i * case.bytes, case.bytes) for i in range(case.batches)] * case.rounds
    if case.kind == "host":
        return {"pinned memcpy": _copies(rig, whole)}
    each = [_move(rig, case, here, there, case.size) for here, there in zip(*order.batches[0], strict=True)]
    return {"memcpy": _copies(rig, whole), "memcpy each": _copies(rig, each)}


def _move(rig: GPURig, case: GPUCase, here: int, there: int, size: int) -> Move:
    """As the case moves them, between this side's blocks and the memory for raw copies."""
    assert rig.here.blocks is not None
    assert rig.raw is not None
    mine, other = rig.here.blocks.ptr + here, rig.raw.ptr + there
    return (mine, other, size) if case.read else (other, mine, size)


def _copies(rig: GPURig, moves: list[Move]) -> Turn:
    total = sum(size for _, _, size in moves)
    return lambda: total / rig.copies.seconds(moves) / 1e9


def latency(rig: GPURig, case: GPUCase) -> Plan:
    """One block and its Wait at a time, each another block: median microseconds."""
    order, session = _Blocks(rig, case), rig.session
    transfer = session.read if case.read else session.write
    pairs = [(here[0], there[0]) for here, there in order.batches]
    turns, last = itertools.cycle(pairs), deque[TransferStatus](maxlen=1)

    def once() -> None:
        status = transfer(*next(turns), case.size, session.allocate_transfer_uid())
        status.Wait()
        last.append(status)

    def ours() -> float:
        figure = median_us(once, len(pairs))
        for status in last:
            demand_success(case, status)
        return figure

    moves = [_move(rig, case, here, there, case.size) for here, there in pairs]
    return Plan(ours, {"memcpy and wait": lambda: rig.copies.latency_us(moves)}, order.wipe, order.wrong, min)


PLANS: dict[str, Callable[[GPURig, GPUCase], Plan]] = {
    "blocks": blocks,
    "host": blocks,
    "tcp": blocks,
    "latency": latency,
}
