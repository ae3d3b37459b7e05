# SPDX-License-Identifier: MIT
"""The names of mori.cpp for mori.ops, and what mori.ops has beyond upstream."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from small_op import EXPERTS, HIDDEN, TOKENS, everywhere, halves, ids, new_op, rows

import mori.cpp
from arrays import address
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineKernelType, ReceiveCapError, launch_local_expert_count
from ranks import Rank, Ranks, on_ranks

CONFIG = mori.cpp.EpDispatchCombineConfig(
    rank=1,
    world_size=2,
    hidden_dim=8,
    max_token_type_size=4,
    max_num_inp_token_per_rank=4,
    num_experts_per_rank=2,
    num_experts_per_token=2,
    max_total_recv_tokens=5,
)


def test_the_native_configuration_has_the_fields_but_for_the_element_type_in_the_same_order() -> None:
    names = [f.name for f in dataclasses.fields(CONFIG)]
    assert names == [f.name for f in dataclasses.fields(EpDispatchCombineConfig)][1:]
    assert CONFIG.to_packed_array() == [1, 2, 8, 0, 0, 4, 4, 2, 2, 8, 80, 5, 1, 0, 8, 0, 1, 0]


def test_sizes_follow_from_it_without_ranks() -> None:
    assert CONFIG.max_num_tokens_to_send_per_rank() == 4
    assert CONFIG.max_num_tokens_to_send() == 8
    assert CONFIG.max_num_tokens_to_recv_per_rank() == 3
    assert CONFIG.max_num_tokens_to_recv() == 6
    with pytest.raises(ValueError, match="world_size 0"):
        dataclasses.replace(CONFIG, world_size=0).max_num_tokens_to_recv()
    with pytest.raises(TypeError, match="hidden_dim"):
        dataclasses.replace(CONFIG, hidden_dim="8").max_num_tokens_to_recv()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hidden_dim"):
        dataclasses.replace(CONFIG, hidden_dim=2**40).max_num_tokens_to_recv()


def test_experts_are_counted_for_the_rank_of_a_configuration() -> None:
    indices, total = ids((0, 2), (3, 2), (2, 2), (2, 2)), np.array([3], np.int32)
    counts = np.full(EXPERTS, 99, np.int32)
    pointers = [address(array) for array in (indices, total, counts)]
    launch_local_expert_count(CONFIG, *pointers)
    assert counts.tolist() == [4, 1]
    with pytest.raises(ValueError, match="indices_ptr"):
        launch_local_expert_count(CONFIG, 0, *pointers[1:])
    with pytest.raises(RuntimeError, match="stream"):
        launch_local_expert_count(CONFIG, *pointers, stream=1234)
    for wrong in (-1, 7):  # room is for 6
        total[0] = wrong
        with pytest.raises(ValueError, match=str(wrong)):
            launch_local_expert_count(CONFIG, *pointers)


def test_arguments_of_kernels_are_refused_with_the_reason() -> None:
    for refuse in (mori.cpp.prepare_inference_args, mori.cpp.build_args, mori.cpp.build_args_with_routing):
        with pytest.raises(RuntimeError, match="launches itself"):
            refuse(None)


@on_ranks(2)
def test_what_the_native_names_say_of_an_op(rank: Rank) -> None:
    op = new_op(rank)
    assert mori.cpp.get_cur_rank_num_token(op) == 0
    out, weights, _, indices, total = op.dispatch(rows(rank, 3), halves(3), None, everywhere(rank))
    assert mori.cpp.get_cur_rank_num_token(op) == 3
    given = [address(array) for array in (out, weights, indices, total)]
    at = mori.cpp.get_dispatch_output_ptrs(op)
    assert [at[0], at[1], at[3], at[4]] == given
    assert at[2] == 0
    sums = op.combine(out, weights, everywhere(rank))
    assert mori.cpp.get_combine_output_ptrs(op) == tuple(address(array) for array in sums)
    info = mori.cpp.get_handle_info(op)
    assert (info["rank"], info["kernel_type"]) == (rank.me, EpDispatchCombineKernelType.IntraNode)
    mori.cpp.launch_reset(op)


@on_ranks(2)
def test_combine_multiplies_by_the_weights_of_a_routing_while_it_is_the_last(rank: Rank) -> None:
    op = new_op(rank)
    choice, weights = everywhere(rank), np.full((3, 2), 0.25, np.float32)
    weights[:, 1] = 0.5
    *_, handle = op.dispatch(rows(rank, 3), weights, None, choice, return_routing=True)
    out, *_ = op.dispatch(rows(rank, 3), weights, None, choice, routing=handle)
    sums, _ = op.combine(out, None, choice, routing=handle, weighted=True)
    assert sums[:3, 0].tolist() == [0.75 * (10 * rank.me + token) for token in range(3)]
    op.dispatch(rows(rank, 2), weights[:2], None, choice[:2])
    with pytest.raises(ValueError, match="weights"):
        op.combine(out, None, choice, routing=handle, weighted=True)
    op.combine(out, None, choice, routing=handle)


@on_ranks(2)
def test_weights_must_have_been_dispatched_to_be_applied(rank: Rank) -> None:
    op = new_op(rank)
    out, *_ = op.dispatch(rows(rank, 3), None, None, everywhere(rank))
    with pytest.raises(ValueError, match="weights"):
        op.combine(out, None, everywhere(rank), weighted=True)
    op.combine(out, None, everywhere(rank))


def overfill(rank: Rank, split: bool) -> Any:
    """Both ranks have 4 rows for rank 0, which has room for 6: rank 1 is refused, and hears so in recv."""
    op = new_op(rank, kernel="AsyncLL" if split else "IntraNode", max_total_recv_tokens=6)
    choice = ids(*[(0, -1)] * TOKENS)
    refused = None
    try:
        if split:
            op.dispatch_send(rows(rank, TOKENS), None, None, choice)
            op.dispatch_recv()
        else:
            op.dispatch(rows(rank, TOKENS), None, None, choice)
    except ReceiveCapError as err:
        refused = str(err)
    received = len(op.get_dispatch_src_token_pos())
    with pytest.raises(ValueError, match="475"):
        op.combine(np.zeros((8, HIDDEN), np.float32), None, choice[:2])
    if received:
        with pytest.raises(ValueError, match=str(received)):
            op.combine(np.zeros((received - 1, HIDDEN), np.float32), None, choice)
    sums, _ = op.combine(np.ones((8, HIDDEN), np.float32), None, choice)
    return refused, received, sums[:TOKENS, 0].tolist()


@pytest.mark.parametrize("split", [False, True])
def test_a_refused_rank_knows_what_the_others_sent_it(ranks: Ranks, split: bool) -> None:
    first, second = ranks.world(2).run(overfill, split)
    assert first == (None, 4, [1.0] * 4)
    assert second[0] is not None
    assert second[1:] == (0, [0.0] * 4)


@on_ranks(1)
def test_every_call_without_its_state_says_so(rank: Rank) -> None:
    op = new_op(rank)
    packed = np.zeros((EXPERTS, TOKENS, HIDDEN), np.float32)
    with pytest.raises(RuntimeError, match="conversion"):
        op.convert_combine_input(packed, None, None)
    _, *_ = op.dispatch_standard_moe(rows(rank, 2), None, None, ids((0, 1), (1, 1)))
    with pytest.raises(RuntimeError, match="weights"):
        op.combine_standard_moe(packed, None, ids((0, 1), (1, 1)))
    with pytest.raises(ValueError, match="shape"):
        op.convert_combine_input(packed[:1], None, None)
    with pytest.raises(ValueError, match="room"):
        op.get_registered_combine_input_buffer(np.float32, HIDDEN + 1)
    with pytest.raises(KeyError, match="float64"):
        op.get_registered_combine_input_buffer(np.float64)
