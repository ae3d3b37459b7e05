# SPDX-License-Identifier: MIT
"""Launch settings: hints on a host, but with the values that clients expect to read."""

from __future__ import annotations

import os
from unittest import mock

import pytest
from small_op import new_op

from ranks import Rank, on_ranks

MODE = "MORI_EP_LAUNCH_CONFIG_MODE"


@on_ranks(1)
def test_arguments_come_first(rank: Rank) -> None:
    op = new_op(rank)
    assert tuple(op.get_launch_config(True, 11, 12, 13)) == (11, 12, 13)
    assert tuple(op.get_launch_config(is_dispatch=False, block_num=4, rdma_block_num=5, warp_per_block=6)) == (4, 5, 6)


@on_ranks(1)
def test_then_what_dispatch_has_built_in_and_then_the_configuration(rank: Rank) -> None:
    op = new_op(rank, block_num=21, rdma_block_num=3, warp_num_per_block=7)
    assert [op.get_launch_config()[n] for n in (0, 2)] == [256, 16]
    assert tuple(op.get_launch_config(is_dispatch=False)) == (21, 3, 7)
    other = new_op(rank, kernel="InterNodeV1", block_num=21, rdma_block_num=3, warp_num_per_block=7)
    assert tuple(other.get_launch_config()) == (21, 3, 7)


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        ("InterNodeV1", (96, 64, 8)),
        ("InterNodeV1LL", (256, 128, 8)),
        ("IntraNode", (128, 0, 16)),
        ("AsyncLL", (128, 0, 16)),
    ],
)
@on_ranks(1)
def test_the_automatic_mode_has_values_for_each_kernel(rank: Rank, kernel: str, settings: tuple[int, int, int]) -> None:
    with mock.patch.dict(os.environ, {MODE: "AUTO"}):
        op = new_op(rank, kernel=kernel)
    assert op.launch_config_mode == "AUTO"
    assert (op.auto_block_num, op.auto_rdma_block_num, op.auto_warp_per_block) == settings
    assert tuple(op.get_launch_config()) == settings


@on_ranks(1)
def test_any_other_mode_is_refused(rank: Rank) -> None:
    with mock.patch.dict(os.environ, {MODE: "SOMETIMES"}), pytest.raises(ValueError, match="SOMETIMES"):
        new_op(rank)
