# SPDX-License-Identifier: MIT
"""Routing handles: the routing of a dispatch, kept for later calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._errors import InvalidArgumentError
from . import _arrays as arrays


@dataclass
class EpDispatchRoutingHandle:
    """A snapshot of a dispatch's routing.

    Pass it to ``dispatch(routing=)`` to repeat the dispatch, or to ``combine(routing=)``. The
    caller owns the tensors; a handle made from copies of them works too. It is valid for ops of the
    same configuration. All ranks must use their handles of the same dispatch.

    Attributes:
        disp_dest_tok_id_map: int32 [tokens * top-k]: rank * max_recv + slot of the row for each
            choice; a number beyond all slots if the choice is sent to no rank.
        inter_node_disp_dest_tok_id_map: int32, empty on host memory; so is inter_node_disp_send_map.
        total_recv_token_num: int32 [1]: number of rows that this rank received.
        disp_tok_id_to_src_tok_id_local: int32 [rows]: source position of each row, as in
            get_dispatch_src_token_pos.
        cur_rank_num_token: number of tokens that this rank dispatched.
    """

    disp_dest_tok_id_map: Any
    inter_node_disp_dest_tok_id_map: Any
    inter_node_disp_send_map: Any
    total_recv_token_num: Any
    disp_tok_id_to_src_tok_id_local: Any
    cur_rank_num_token: int

    def tensors(self) -> tuple[Any, Any, Any, Any, Any]:
        """Return the five tensors, for :meth:`from_tensors`."""
        return (
            self.disp_dest_tok_id_map,
            self.inter_node_disp_dest_tok_id_map,
            self.inter_node_disp_send_map,
            self.total_recv_token_num,
            self.disp_tok_id_to_src_tok_id_local,
        )

    @classmethod
    def from_tensors(cls, tensors: Sequence[Any], cur_rank_num_token: int = 0) -> EpDispatchRoutingHandle:
        """Make a handle from the result of :meth:`tensors`."""
        if len(tensors) != 5:
            raise InvalidArgumentError(f"a routing handle has 5 tensors, got {len(tensors)}")
        slots, inter_node_slots, send_map, total, positions = tensors
        return cls(slots, inter_node_slots, send_map, total, positions, cur_rank_num_token)


def route(handle: Any, topk: int, place: int = arrays.HOST) -> tuple[Any, int, int]:
    """Return a handle's routing map, number of tokens, and number of received rows.

    On a GPU the last is the address of the number.
    """
    if not isinstance(handle, EpDispatchRoutingHandle):
        raise TypeError(f"routing is {type(handle).__name__}, want an EpDispatchRoutingHandle")
    slots, tokens = handle.disp_dest_tok_id_map, handle.cur_rank_num_token
    kind = arrays.kind_of(slots, "routing.disp_dest_tok_id_map", place)
    total = handle.total_recv_token_num
    total_kind = arrays.kind_of(total, "routing.total_recv_token_num", place)
    if arrays.name_of(slots.dtype) != "int32" or tuple(slots.shape) != (tokens * topk,):
        raise InvalidArgumentError(
            f"routing.disp_dest_tok_id_map has {tuple(slots.shape)} elements of {arrays.name_of(slots.dtype)}, want"
            f" ({tokens * topk},) of int32 for its {tokens} tokens"
        )
    if tuple(total.shape) != (1,):
        raise InvalidArgumentError("routing.total_recv_token_num must have one element")
    rows = int(total[0]) if place == arrays.HOST else arrays.address(total_kind, total)
    return arrays.operand(kind, slots, "routing.disp_dest_tok_id_map"), tokens, rows


def parts(handle: EpDispatchRoutingHandle) -> tuple[int, Any, Any]:
    """Return a handle's number of tokens, and its arrays that calls use."""
    return handle.cur_rank_num_token, handle.disp_dest_tok_id_map, handle.total_recv_token_num
