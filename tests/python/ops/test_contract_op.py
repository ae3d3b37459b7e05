# SPDX-License-Identifier: MIT
"""What an op reports about itself, and several of them."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest
from small_op import EXPERTS, TOKENS, everywhere, ids, new_op, rows

from arrays import address, take, type_name
from mori.ops import EpDispatchCombineKernelType, EpDispatchCombineOp, launch_local_expert_count
from ranks import Rank, on_ranks


@on_ranks(2)
def test_several_live_side_by_side(rank: Rank) -> None:
    first, second = new_op(rank), new_op(rank, hidden_dim=4, max_num_inp_token_per_rank=2)
    a, *_ = first.dispatch(rows(rank, 3), None, None, everywhere(rank))
    small = np.full((2, 4), 100 + rank.me, np.float32)
    b, *_ = second.dispatch(small, None, None, everywhere(rank, 2))
    sums_b, _ = second.combine(b, None, everywhere(rank, 2))
    sums_a, _ = first.combine(a, None, everywhere(rank))
    assert sums_a[:3, 0].tolist() == [2 * (10 * rank.me + token) for token in range(3)]
    assert sums_b[:2, 3].tolist() == [2 * (100 + rank.me)] * 2


@on_ranks(2)
def test_sizes_follow_from_the_configuration(rank: Rank) -> None:
    for cap, per_rank in ((0, 4), (3, 2), (5, 3), (100, 4)):
        op = new_op(rank, max_total_recv_tokens=cap)
        assert op.max_num_tokens_to_send_per_rank() == TOKENS
        assert op.max_num_tokens_to_send() == 2 * TOKENS
        assert op.max_num_tokens_to_recv_per_rank() == per_rank
        assert op.max_num_tokens_to_recv() == 2 * per_rank


@on_ranks(2)
def test_a_position_is_taken_apart_by_what_all_may_send(rank: Rank) -> None:
    assert tuple(new_op(rank).decode_send_flat_idx(8 + 3)) == (1, 3)


@on_ranks(2)
def test_attributes_that_clients_read(rank: Rank) -> None:
    op = new_op(rank)
    assert op.config.kernel_type is EpDispatchCombineKernelType.IntraNode
    assert (tuple(op.local_expert_count.shape), type_name(op.local_expert_count)) == ((EXPERTS,), "int32")
    assert op.launch_config_mode == "MANUAL"
    assert op._fp8_blockwise_combine_scale_dim == 56


@on_ranks(2)
def test_the_local_expert_count_is_filled_when_asked(rank: Rank) -> None:
    op = new_op(rank)
    choice = ids((0, 1), (1, 1), (3, -1))
    op.dispatch(rows(rank, 3), None, None, choice, call_local_expert_count=True)
    assert take(op.local_expert_count).tolist() == [[2, 6], [0, 2]][rank.me]


@on_ranks(2)
def test_experts_can_be_counted_from_addresses(rank: Rank) -> None:
    config = new_op(rank).config
    indices, total = ids((0, 1), (1, 2), (3, 3)), np.array([2], np.int32)
    counts = np.full(EXPERTS, 99, np.int32)
    launch_local_expert_count(config, address(indices), address(total), address(counts))
    assert counts.tolist() == [[1, 2], [1, 0]][rank.me]


@on_ranks(2)
def test_counting_needs_positive_launch_settings(rank: Rank) -> None:
    config = new_op(rank, block_num=0).config
    three = [np.zeros(4, np.int32) for _ in range(3)]
    with pytest.raises(RuntimeError):
        launch_local_expert_count(config, *(address(a) for a in three))


@pytest.mark.parametrize("changes", [{"rank": 0}, {"world_size": 4}, {"rank": 7}])
@on_ranks(2)
def test_the_ranks_of_the_configuration_are_those_of_shmem(rank: Rank, changes: dict[str, int]) -> None:
    if rank.me == changes.get("rank"):
        changes = {"rank": 1}
    config = dataclasses.replace(new_op(rank).config, **changes)
    with pytest.raises((ValueError, RuntimeError), match="rank"):
        EpDispatchCombineOp(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_dim", 0),
        ("hidden_dim", -1),
        ("scale_dim", -1),
        ("max_token_type_size", 0),
        ("max_num_inp_token_per_rank", 0),
        ("num_experts_per_rank", 0),
        ("num_experts_per_token", 0),
        ("num_experts_per_token", 64),
        ("gpu_per_node", 0),
    ],
)
@on_ranks(2)
def test_impossible_configurations_are_refused_by_field_and_value(rank: Rank, field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field}.*{value}"):
        new_op(rank, **{field: value})


@on_ranks(2)
def test_an_op_that_does_not_fit_in_the_heap_is_refused_and_a_smaller_one_can_be_made(rank: Rank) -> None:
    with pytest.raises((MemoryError, RuntimeError), match="heap"):
        new_op(rank, hidden_dim=7168, max_num_inp_token_per_rank=1 << 16)
    out, *_ = (op := new_op(rank)).dispatch(rows(rank, 3), None, None, everywhere(rank))
    assert op.combine(out, None, everywhere(rank))[0][1, 0] == 2 * (10 * rank.me + 1)


@on_ranks(2)
def test_ops_that_are_gone_leave_their_memory(rank: Rank) -> None:
    for _ in range(40):  # each needs a tenth of the heap
        op = new_op(rank, hidden_dim=1024, max_num_inp_token_per_rank=1 << 10)
        out, *_ = op.dispatch(np.ones((3, 1024), np.float32), None, None, everywhere(rank))
        assert op.combine(out, None, everywhere(rank))[0][2, 0] == 2
        del op, out
        gc.collect()
