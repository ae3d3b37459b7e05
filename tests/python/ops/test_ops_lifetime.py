# SPDX-License-Identifier: MIT
"""Ops and arrays that outlive each other, threads, forks, Ctrl-C, and calls at the wrong time."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import threading
import time

import numpy as np
import pytest
from small_op import HIDDEN, everywhere, new_op, rows

import mori.shmem
from mori.ops import EpDispatchCombineOp
from mori.shmem import shmem_describe
from ranks import Each, Rank, Ranks, on_ranks
from support import need_torch


def used() -> int:
    heap: int = shmem_describe()["heap"]["used"]
    return heap


def sweep(rank: Rank) -> None:
    """Free the ops that earlier tests dropped."""
    gc.collect()
    new_op(rank).close()


def journey(op: EpDispatchCombineOp, rank: Rank, n: int = 3) -> list[float]:
    out, *_ = op.dispatch(rows(rank, n), None, None, everywhere(rank, n))
    sums, _ = op.combine(out, None, everywhere(rank, n))
    return [float(x) for x in sums[:n, 0]]


def expected(rank: Rank, n: int = 3) -> list[float]:
    return [2.0 * (10 * rank.me + token) for token in range(n)]


@on_ranks(2)
def test_close_frees_at_once_and_may_be_repeated(rank: Rank) -> None:
    sweep(rank)
    before = used()
    op = new_op(rank)
    assert used() > before
    op.close()
    op.close()
    assert used() == before
    with pytest.raises(RuntimeError, match="closed"):
        op.dispatch(rows(rank, 3), None, None, everywhere(rank))


@on_ranks(2)
def test_arrays_keep_the_memory_of_an_op_that_was_dropped(rank: Rank, kind: str) -> None:
    op = new_op(rank)
    out, *_ = op.dispatch(rows(rank, 3, kind), None, None, everywhere(rank, 3, kind))
    last = out[5:6] if rank.me == 0 else None
    del op, out
    gc.collect()
    others = [new_op(rank) for _ in range(5)]
    for other in others:
        journey(other, rank)
    if last is not None:
        assert last[0, 0] == 12


@on_ranks(2)
def test_an_op_that_some_ranks_still_use_stays(rank: Rank) -> None:
    sweep(rank)
    before = used()
    op = new_op(rank)
    one = used() - before
    kept = op if rank.me == 1 else None
    del op
    gc.collect()
    second = new_op(rank)
    assert used() - before == 2 * one
    del kept, second
    gc.collect()
    third = new_op(rank)
    assert used() - before == one
    assert journey(third, rank) == expected(rank)
    third.close()


@on_ranks(2)
def test_an_op_may_be_dropped_between_send_and_recv(rank: Rank) -> None:
    for _ in range(20):
        op = new_op(rank, kernel="AsyncLL")
        op.dispatch_send(rows(rank, 3), None, None, everywhere(rank))
        del op
        gc.collect()
    assert journey(new_op(rank), rank) == expected(rank)


def send_and_finalize(rank: Rank) -> None:
    op = new_op(rank, kernel="AsyncLL")
    op.dispatch_send(rows(rank, 3), None, None, everywhere(rank))
    mori.shmem.shmem_finalize()
    for call in (op.dispatch_recv, op.get_dispatch_src_token_pos, op.close):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(RuntimeError):
        op.dispatch_send(rows(rank, 3), None, None, everywhere(rank))


def test_finalize_ends_what_is_under_way_and_later_calls_say_so(ranks: Ranks) -> None:
    ranks.world(2).run(send_and_finalize)
    ranks.stop()


def finalize_late(rank: Rank, delay: float) -> int:
    op = new_op(rank)
    assert journey(op, rank) == expected(rank)
    time.sleep(delay)
    return mori.shmem.shmem_finalize()


def test_finalize_waits_for_ranks_that_come_later(ranks: Ranks) -> None:
    assert ranks.world(2).run(finalize_late, Each([0, 0.7])) == [0, 0]
    ranks.stop()


def finalize_beside(rank: Rank) -> str:
    """One thread waits in a dispatch that the other rank never makes, and another finalizes."""
    op = new_op(rank)
    ended: list[str] = []

    def wait() -> None:
        try:
            op.dispatch(rows(rank, 3), None, None, everywhere(rank))
        except RuntimeError as err:
            ended.append(str(err))

    thread = threading.Thread(target=wait)
    if rank.me == 0:
        thread.start()
        time.sleep(0.3)
    mori.shmem.shmem_finalize()
    if rank.me == 0:
        thread.join()
    return "".join(ended)


def test_finalize_ends_a_call_of_another_thread(ranks: Ranks) -> None:
    assert "finalized" in ranks.world(2).run(finalize_beside)[0]
    ranks.stop()


@on_ranks(2)
def test_two_threads_in_one_op_are_told_apart(rank: Rank) -> None:
    op = new_op(rank)
    refused: list[str] = []

    def call() -> None:
        try:
            op.dispatch(rows(rank, 3), None, None, everywhere(rank))
        except RuntimeError as err:
            refused.append(str(err))

    if rank.me == 1:
        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        while not refused:
            time.sleep(0.01)
    mori.shmem.shmem_barrier_all()
    if rank.me == 0:
        call()
    else:
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        assert "thread" in refused[0]
    assert refused == [] or rank.me == 1
    op.combine(np.zeros((8, HIDDEN), np.float32), None, everywhere(rank))


@on_ranks(2)
def test_another_thread_runs_while_a_call_waits(rank: Rank) -> None:
    op = new_op(rank)
    ticks = []
    if rank.me == 0:
        other = threading.Thread(target=lambda: [ticks.append(time.sleep(0.01)) for _ in range(10)])
        other.start()
    else:
        time.sleep(0.5)
    assert journey(op, rank) == expected(rank)
    if rank.me == 0:
        assert len(ticks) == 10
        other.join()


def interrupt_soon() -> None:
    threading.Timer(0.3, _thread.interrupt_main).start()


@on_ranks(2)
def test_ctrl_c_ends_a_dispatch_that_waits_and_the_op_with_it(rank: Rank) -> None:
    op, other = new_op(rank), new_op(rank)
    if rank.me == 0:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            op.dispatch(rows(rank, 3), None, None, everywhere(rank))
        signal.signal(signal.SIGINT, before)
        with pytest.raises(RuntimeError, match="broken"):
            op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    assert journey(other, rank) == expected(rank)


@on_ranks(2)
def test_ctrl_c_in_a_recv_loses_nothing(rank: Rank) -> None:
    op = new_op(rank, kernel="AsyncLL")
    if rank.me == 0:
        out, *_, total = op.dispatch_send(rows(rank, 3), None, None, everywhere(rank))
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            op.dispatch_recv()
        signal.signal(signal.SIGINT, before)
        mori.shmem.shmem_barrier_all()
    else:
        mori.shmem.shmem_barrier_all()
        out, *_, total = op.dispatch_send(rows(rank, 3), None, None, everywhere(rank))
    op.dispatch_recv()
    assert out[: int(total[0]), 0].tolist() == [0, 1, 2, 10, 11, 12]
    sums, _ = op.combine(out, None, everywhere(rank))
    assert sums[:3, 0].tolist() == expected(rank)


@on_ranks(2)
def test_a_forked_child_cannot_use_the_op_and_harms_nothing_by_dropping_it(rank: Rank) -> None:
    op = new_op(rank)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            op.dispatch(rows(rank, 3), None, None, everywhere(rank))
        except RuntimeError as err:
            code = 0 if type(err).__name__ == "ForkError" else 2
        del op
        gc.collect()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert journey(op, rank) == expected(rank)


@on_ranks(1)
def test_a_tensor_on_another_device_is_refused_with_the_reason(rank: Rank) -> None:
    need_torch()
    import torch

    op = new_op(rank)
    choice = torch.tensor([[0, 1]], dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"input is on meta.*host memory"):
        op.dispatch(torch.empty(1, HIDDEN, device="meta"), None, None, choice)
    with pytest.raises(RuntimeError, match="indices is on meta"):
        op.dispatch(torch.ones(1, HIDDEN), None, None, choice.to("meta"))
    with pytest.raises(TypeError, match="list"):
        op.dispatch([[1.0] * HIDDEN], None, None, choice)  # type: ignore[arg-type]


@on_ranks(2)
def test_kinds_may_be_mixed_and_results_are_like_the_input(rank: Rank) -> None:
    need_torch()
    import torch

    op = new_op(rank)
    out, *_ = op.dispatch(torch.from_numpy(rows(rank, 3)), None, None, everywhere(rank))
    assert isinstance(out, torch.Tensor)
    assert isinstance(op.local_expert_count, torch.Tensor)
    sums, _ = op.combine(out.numpy(), None, torch.from_numpy(everywhere(rank)))
    assert isinstance(sums, np.ndarray)
    assert sums[:3, 0].tolist() == expected(rank)
