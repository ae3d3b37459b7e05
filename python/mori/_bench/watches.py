# SPDX-License-Identifier: MIT
"""Plans of the cases that watch a process: polling, idling, and what many transfers leave behind."""

from __future__ import annotations

import time
import timeit
from collections import deque

from mori.cpp import TransferStatus

from .cases import Case
from .measure import Plan
from .moves import demand_success
from .rig import Rig
from .side import GRANULE, Usage

_WINDOW = 64
_SLOTS = 1024


def poll(rig: Rig, case: Case) -> Plan:
    """One status.Succeeded(), its look-up included: nanoseconds. Beside it a plain method of a built-in type."""
    status, polls = _one_transfer(rig, case), rig.effort.polls

    def calls(thing: object, method: str) -> float:
        return timeit.Timer(f"thing.{method}()", globals={"thing": thing}).timeit(polls) / polls * 1e9

    return Plan(lambda: calls(status, "Succeeded"), {"str.isdigit": lambda: calls("x", "isdigit")}, best=min)


def idle(rig: Rig, case: Case) -> Plan:
    """The busier of two processes whose engines are connected and have nothing to do: per cent of a core."""
    _one_transfer(rig, case)

    def ours() -> float:
        before, start = _usages(rig), time.perf_counter()
        time.sleep(rig.effort.idle_s)
        after, spent = _usages(rig), time.perf_counter() - start
        return max(100 * (b.cpu_s - a.cpu_s) / spent for a, b in zip(before, after, strict=True))

    return Plan(ours, repeats=5)


def leak(rig: Rig, case: Case) -> Plan:
    """How much the resident memory of either process grows over many small transfers: KiB.

    The warm-up does the same number of transfers, so only what grows without end is seen.
    """
    session, count = rig.session, rig.effort.count(case.entries)
    extra: dict[str, object] = {"transfers": count}

    def burst() -> None:
        pending: deque[TransferStatus] = deque()
        for i in range(count):
            offset = i % _SLOTS * case.size
            pending.append(session.write(offset, offset, case.size, session.allocate_transfer_uid()))
            if len(pending) == _WINDOW:
                _finish(case, pending.popleft())
        for status in pending:
            _finish(case, status)

    def ours() -> float:
        before, start = _usages(rig), time.perf_counter()
        burst()
        extra["transfers_per_s"] = round(count / (time.perf_counter() - start))
        after = _usages(rig)
        extra["threads_grown"] = [b.threads - a.threads for a, b in zip(before, after, strict=True)]
        extra["fds_grown"] = [b.fds - a.fds for a, b in zip(before, after, strict=True)]
        return max(0.0, *((b.rss - a.rss) / 1024 for a, b in zip(before, after, strict=True)))

    return Plan(ours, repeats=1, extra=extra)


def _one_transfer(rig: Rig, case: Case) -> TransferStatus:
    status = rig.session.write(0, 0, GRANULE, rig.session.allocate_transfer_uid())
    _finish(case, status)
    return status


def _finish(case: Case, status: TransferStatus) -> None:
    status.Wait()
    demand_success(case, status)


def _usages(rig: Rig) -> tuple[Usage, Usage]:
    return rig.here.usage(), rig.there.call("usage")
