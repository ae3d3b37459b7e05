# SPDX-License-Identifier: MIT
"""mori.ops on GPUs, real or emulated, against the reference, and what it refuses there."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_contract_standard as standard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_op import EXPERTS, HIDDEN, TOKENS, TOPK, new_op
from test_property import cases, check

import gpus
from arrays import Place, fill, make, take
from mori._errors import UnsupportedError
from mori.ops import EpDispatchCombineOp, ReceiveCapError
from mori.tensor_utils import GpuTensorView
from ranks import Rank, Ranks

pytestmark = pytest.mark.timeout(300)
few = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(params=["gpu", "gpu_torch"])
def gpu_kind(request: pytest.FixtureRequest) -> str:
    """Each kind of array that is on a GPU; torch's needs a real one."""
    if request.param == "gpu_torch":
        gpus.need_cuda_torch()
    return request.param


@pytest.mark.parametrize("world", [1, 2])
@few
@given(data=st.data())
def test_dispatch_and_combine(gpu_ranks: Ranks, gpu_kind: str, world: int, data: st.DataObject) -> None:
    case = data.draw(cases(world, kind=gpu_kind))
    if case.way.kernel == "AsyncLL" and not case.way.split:
        case.way = replace(case.way, split=True)
    check(gpu_ranks, case)


def on_gpu(rank: Rank, **changes: Any) -> EpDispatchCombineOp:
    op = new_op(rank, **changes)
    Place.gpu = op._place
    return op


def rows_of(rank: Rank, n: int = 3) -> tuple[Any, Any]:
    rows = np.repeat(10 * rank.me + np.arange(n, dtype=np.float32)[:, None], HIDDEN, 1)
    return make("gpu", rows), make("gpu", np.array([(0, EXPERTS * rank.size - 1)] * n, np.int32))


def _results(rank: Rank) -> None:
    op = on_gpu(rank)
    rows, ids = rows_of(rank)
    received = op.dispatch(rows, None, None, ids)
    out, weights, scales, indices, total = received
    assert isinstance(out, GpuTensorView)
    assert (out.shape, weights.shape, indices.shape) == ((8, HIDDEN), (8, TOPK), (8, TOPK))
    assert (scales, out.dtype, out.device_id) == (None, "float32", Place.gpu)
    assert take(total).tolist() == [6]
    assert op.get_dispatch_src_token_pos().shape == (6,)
    again = op.dispatch(rows, None, None, ids)
    assert all(a is b for a, b in zip(again, received, strict=True)), "no array is made anew"
    buffer = op.get_registered_combine_input_buffer("float32")
    fill(buffer, out)
    sums, none = op.combine(buffer, None, ids, use_external_inp_buf=0)
    assert none is None
    assert take(sums)[:3, 0].tolist() == [2.0 * (10 * rank.me + t) for t in range(3)]
    op.check()
    op.close()


def test_results_are_views_of_the_gpus_memory(gpu_ranks: Ranks) -> None:
    gpu_ranks.world(2).run(_results)


def _streams(rank: Rank) -> None:
    from mori.device import Stream

    op = on_gpu(rank)
    with Stream(Place.gpu) as stream:
        op.stream = stream
        rows, ids = rows_of(rank)
        out, *_, handle = op.dispatch(rows, None, None, ids, return_routing=True)
        sums, _ = op.combine(out, None, ids, routing=handle)
        again, *_ = op.dispatch(rows, None, None, ids, routing=handle)
        assert again is out
        stream.wait()
        assert take(sums)[:3, 0].tolist() == [2.0 * (10 * rank.me + t) for t in range(3)]
        op.combine(out, None, ids, block_num=2, warp_per_block=1)
        stream.wait()
        op.check()
        op.close()


def _count() -> int:
    from mori.device import devices

    return len(devices())


def test_calls_queue_on_the_stream_that_the_op_is_given(gpu_ranks: Ranks) -> None:
    gpu_ranks.world(2).run(_streams)


def _standard(rank: Rank, kind: str) -> None:
    for kernel in ("IntraNode", "InterNodeV1LL"):
        op = on_gpu(rank, kernel=kernel)
        for turn in range(3):
            given = standard.arguments(rank.me, kind)
            packed = op.dispatch_standard_moe(*given)
            op.check()
            standard.check_packed(rank.me, packed)
            made = make(kind, standard.outputs(rank.me))
            if turn == 2:
                summed = op.convert_combine_input(made, packed[2], packed[3])
                assert tuple(summed.shape) == (standard.WORLD * TOKENS, HIDDEN)
                out, _ = op.combine(summed, None, given[3])
            else:
                out, _ = op.combine_standard_moe(made, given[1], given[3])
            assert take(out)[: len(standard.SENT[rank.me])].tolist() == standard.expected(rank.me).tolist()
        op.check()
        op.close()


def test_rows_are_brought_together_by_expert_and_back(gpu_ranks: Ranks, gpu_kind: str) -> None:
    gpu_ranks.world(standard.WORLD).run(_standard, gpu_kind)


def _refusals(rank: Rank) -> None:
    op = on_gpu(rank)
    rows, ids = rows_of(rank)
    host = np.zeros((3, HIDDEN), np.float32)
    with pytest.raises(UnsupportedError, match="input is on host memory, and this op's buffers are on GPU"):
        op.dispatch(host, None, None, ids)
    with pytest.raises(UnsupportedError, match="indices is on host memory"):
        op.dispatch(rows, None, None, np.zeros((3, TOPK), np.int32))
    with pytest.raises(TypeError, match="input is bytes"):
        op.dispatch(b"", None, None, ids)
    with pytest.raises(ValueError, match="indices has the shape"):
        op.dispatch(rows, None, None, make("gpu", np.zeros((2, TOPK), np.int32)))
    with pytest.raises(ValueError, match="weights has the dtype int32"):
        op.dispatch(rows, ids, None, ids)
    with pytest.raises(KeyError, match="rows of int32"):
        op.dispatch(ids, None, None, ids)
    with pytest.raises(ValueError, match=f"at most {TOKENS} tokens"):
        op.dispatch(*rows_of(rank, TOKENS + 1)[:1], None, None, rows_of(rank, TOKENS + 1)[1])
    out = op.dispatch(rows, None, None, ids)[0]
    with pytest.raises(ValueError, match=r"3 rows and 3 rows of indices, and .* may have been received"):
        op.convert_dispatch_output(rows, ids)
    with pytest.raises(UnsupportedError, match="dispatch_out_x is on host memory"):
        op.convert_dispatch_output(host, ids)
    op.combine(out, None, ids)
    op.check()
    if _count() > 1:
        Place.gpu = 1 - Place.gpu
        elsewhere = make("gpu", host)
        with pytest.raises(UnsupportedError, match="input is on GPU"):
            op.dispatch(elsewhere, None, None, ids)
    op.close()


def test_what_is_wrong_is_refused(gpu_ranks: Ranks) -> None:
    gpu_ranks.world(2).run(_refusals)


def _alike(rank: Rank, kind: str) -> None:
    op, held = on_gpu(rank), []

    def give(values: Any) -> Any:
        held.append(make(kind, np.asarray(values)))  # until the GPU has done the work
        return held[-1]

    ids = np.array([(0, EXPERTS * rank.size - 1)] * 3, np.int32)
    halves = np.full((3, TOPK), 0.5, np.float32)
    for turn, n in enumerate((3, 3, 3, 2, 2, 3)):
        rows = np.repeat(100 * turn + 10 * rank.me + np.arange(n, dtype=np.float32)[:, None], HIDDEN, 1)
        weights = give(halves[:n] * turn) if turn % 3 != 2 else None
        given = give(rows), weights, None, give(ids[:n])
        out, out_weights, *_, total = op.dispatch(*given)
        assert take(total).tolist() == [2 * n]
        sums, summed = op.combine(out, out_weights if weights is not None else None, given[3])
        assert take(sums)[:n].tolist() == (2 * rows).tolist()
        if weights is not None:
            assert take(summed)[:n].tolist() == (2 * turn * halves[:n]).tolist()
        else:
            assert summed is None
    routed = op.dispatch(*given, return_routing=True)[5]
    for turn in range(3):  # replays, between which something else is dispatched
        op.dispatch(give(rows[:2]), None, None, give(ids[:2]))
        out, *_ = op.dispatch(give(rows + turn), None, None, give(ids), routing=routed)
        for _ in range(2):
            sums, _ = op.combine(out, None, give(ids), routing=routed)
            assert take(sums)[:3].tolist() == (2 * (rows + turn)).tolist()
    op.check()
    op.close()
    with pytest.raises(RuntimeError, match="closed"):
        op.dispatch(give(rows), None, None, give(ids), routing=routed)


def test_calls_alike_have_results_of_their_own(gpu_ranks: Ranks, gpu_kind: str) -> None:
    gpu_ranks.world(2).run(_alike, gpu_kind)


def _dropped(rank: Rank, kind: str) -> None:
    op = on_gpu(rank)
    rows, ids = make(kind, np.ones((3, HIDDEN), np.float32)), make(kind, np.array([(0, EXPERTS - 1)] * 3, np.int32))
    for _ in range(2):
        out, *_ = op.dispatch(rows, None, None, ids)
        sums, _ = op.combine(out, None, ids)
    take(sums)  # rows and ids are freed below, and the GPU must have read them
    gone = weakref.ref(op)
    del op, out, sums, _
    gc.collect()
    assert gone() is None, "calls that are kept do not keep the op"


def test_an_op_that_is_dropped_goes_whatever_it_was_called_with(gpu_ranks: Ranks, gpu_kind: str) -> None:
    gpu_ranks.world(1).run(_dropped, gpu_kind)


def _overfull(rank: Rank) -> int:
    """Of calls that are alike, two overflow rank 0; whichever calls report it, all are executed."""
    op, refusals = on_gpu(rank, max_total_recv_tokens=6), 0
    rows, nowhere, first = rows_of(rank, TOKENS)[0], [(-1, -1)] * TOKENS, [(0, -1)] * TOKENS
    modest = make("gpu", np.array(nowhere if rank.me else first, np.int32))
    greedy = make("gpu", np.array(first, np.int32))
    out, *_, total = op.dispatch(rows, None, None, modest)
    sums, _ = op.combine(out, None, modest)
    for ids in (greedy, modest, greedy, modest):
        for call in (lambda: op.dispatch(rows, None, None, ids), lambda: op.combine(out, None, ids)):  # noqa: B023
            try:
                call()
            except ReceiveCapError:
                refusals += 1
        assert op._tokens == TOKENS
        assert take(sums)[:TOKENS].tolist() == (0 * take(rows) if rank.me else take(rows)).tolist()
    assert take(total).tolist() == [0], "combine says that there are no rows any more"
    op.close()
    return refusals


def test_a_call_like_others_that_finds_no_room_is_told_once(gpu_ranks: Ranks) -> None:
    assert gpu_ranks.world(2).run(_overfull) == [0, 2]


def _wrong_after_right(rank: Rank) -> None:
    op = on_gpu(rank)
    rows, ids = rows_of(rank)
    weights = make("gpu", np.ones((3, TOPK), np.float32))
    out = op.dispatch(rows, weights, None, ids)[0]
    op.combine(out, None, ids)
    ids16 = make("gpu", np.zeros((3, TOPK), np.int16))
    for wrong, what in (
        ((b"", weights, None, ids), "input is bytes"),
        ((rows, weights, None, None), "indices is NoneType"),
        ((rows, weights, None, ids16), "indices has the dtype int16"),
        ((rows, rows, None, ids), "weights has the shape"),
        ((rows, ids, None, ids), "weights has the dtype int32"),
        ((ids, weights, None, ids), "rows of int32"),
        ((rows, weights, None, rows_of(rank, 2)[1]), "indices has the shape"),
        ((rows, weights, None, np.zeros((3, TOPK), np.int32)), "indices is on host memory"),
    ):
        with pytest.raises((KeyError, TypeError, ValueError, UnsupportedError), match=what):
            op.dispatch(*wrong)
    with pytest.raises(TypeError, match="routing is str"):
        op.dispatch(rows, weights, None, ids, routing="none")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        op.dispatch(rows, weights, None, ids, block_num="many")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="indices has 2 rows, and the dispatch had 3 tokens"):
        op.combine(out, None, rows_of(rank, 2)[1])
    fewer, their_ids = rows_of(rank, 2)
    out = op.dispatch(fewer, None, None, their_ids)[0]
    with pytest.raises(ValueError, match="indices has 3 rows, and the dispatch had 2 tokens"):
        op.combine(out, None, ids)
    op.combine(out, None, their_ids)
    op.check()
    op.close()


def test_what_is_wrong_is_refused_after_calls_that_were_right(gpu_ranks: Ranks) -> None:
    gpu_ranks.world(2).run(_wrong_after_right)


def _numpy(rank: Rank) -> None:
    from mori.ops import EpDispatchCombineConfig

    op = EpDispatchCombineOp(EpDispatchCombineConfig(np.float32, rank.me, rank.size, HIDDEN, 0, 0, 4, 4, EXPERTS, TOPK))
    rows, ids = np.ones((2, HIDDEN), np.float32), np.zeros((2, TOPK), np.int32)
    out, *_, total = op.dispatch(rows, None, None, ids)
    assert isinstance(out, np.ndarray)
    assert total[0] == (2 * rank.size if rank.me == 0 else 0)
    op.close()


def test_an_op_for_numpy_is_on_host_memory(gpu_ranks: Ranks) -> None:
    gpu_ranks.world(2).run(_numpy)


def _missing(rank: Rank) -> str:
    import os

    os.environ["MORI_EP_TIMEOUT_MS"] = "300"
    try:
        op = on_gpu(rank)
    finally:
        del os.environ["MORI_EP_TIMEOUT_MS"]
    told = ""
    if rank.me == 0:
        rows, ids = rows_of(rank)
        out, *_, total = op.dispatch(rows, None, None, ids)
        take(total)  # waits for the stream
        with pytest.raises(TimeoutError) as raised:
            op.combine(out, None, ids)
        told = str(raised.value)
    op.close()
    return told


def test_a_rank_that_does_not_come_is_named(gpu_ranks: Ranks) -> None:
    told, _ = gpu_ranks.world(2).run(_missing)
    assert "dispatch 1 of rank 0: no data arrived from rank 1 (expected 1, seen 0)" in told


def _excluding(rank: Rank) -> None:
    import os

    from mori._errors import InvalidArgumentError

    os.environ["MORI_EP_TIMEOUT_MS"] = "500"
    try:
        op = on_gpu(rank)
    finally:
        del os.environ["MORI_EP_TIMEOUT_MS"]
    if rank.me == 1:
        op.close()
        return
    rows, ids = rows_of(rank)
    *_, total = op.dispatch(rows, None, None, ids)
    take(total)
    with pytest.raises(TimeoutError):
        op.check()
    with pytest.raises(InvalidArgumentError, match="exclude: rank 0 on rank 0 of 2"):
        op.exclude([0])
    assert op.exclude([1]) == 1
    out, *_, total = op.dispatch(rows, None, None, ids)
    sums, _ = op.combine(out, None, ids)
    assert take(total).tolist() == [0]
    assert take(sums)[:3, 0].tolist() == [0.0, 1.0, 2.0], "rank 1 would have given as much again"
    op.check()
    op.close()


def test_ranks_that_are_left_out_are_waited_for_by_nobody(gpu_ranks: Ranks) -> None:
    gpu_ranks.world(2).run(_excluding)


def _dies(rank: Rank) -> str:
    import os
    import time

    from mori import shmem
    from mori._errors import MoriError, PEFailedError

    op = on_gpu(rank)
    rows, ids = rows_of(rank)
    out, *_ = op.dispatch(rows, None, None, ids)
    sums, _ = op.combine(out, None, ids)
    assert take(sums)[:3, 0].tolist() == [2.0 * (10 * rank.me + t) for t in range(3)]
    if rank.me == 1:
        os.kill(os.getpid(), 9)
    deadline = time.monotonic() + 20
    told = ""
    while not told and time.monotonic() < deadline:
        try:
            op.check()
        except PEFailedError as err:
            told = str(err)
        time.sleep(0.02)
    with pytest.raises(PEFailedError):
        op.dispatch(rows, None, None, ids)
    op.exclude([1])
    for n in (3, 1):
        mine, chosen = rows_of(rank, n)
        out, *_ = op.dispatch(mine, None, None, chosen)
        sums, _ = op.combine(out, None, chosen)
        assert take(sums)[:n, 0].tolist() == [0.0, 1.0, 2.0][:n]
    op.check()
    with pytest.raises(MoriError):
        new_op(rank)
    with pytest.raises(MoriError):
        op.close()
    assert shmem.shmem_finalize() != 0
    return told


def test_a_rank_that_dies_is_named_and_the_other_goes_on(gpu: None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**gpus.child_env(), "MORI_SHMEM_DEVICE": "gpu"}.items():
            patch.setenv(name, value)
        ranks = Ranks(environment={"MORI_SHMEM_HEAP_SIZE": "64M"})
        try:
            first, _ = ranks.world(2).outcomes(_dies, timeout=60)
        finally:
            ranks.stop()
    assert first.error is None, first.text
    assert "rank 1" in first.value or "PE 1" in first.value


def test_launches_are_told(gpu_ranks: Ranks) -> None:
    gpu_ranks.world(1).run(_launches)


def _launches(rank: Rank) -> None:
    op = on_gpu(rank)
    blocks, rdma_blocks, warps = op.get_launch_config()
    assert blocks >= 1
    assert warps >= 1
    assert rdma_blocks == 0
    assert op.get_launch_config(True, 1, 7, 1) == (1, 7, 1)
    op.close()
    op = on_gpu(rank, block_num=1, warp_num_per_block=2)
    assert op.get_launch_config(is_dispatch=False) == (1, 0, 2)
    op.close()
