# SPDX-License-Identifier: MIT
"""What a dispatch did with its tokens, kept for later calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._errors import InvalidArgumentError
from . import _arrays as arrays


@dataclass
class EpDispatchRoutingHandle:
    """A snapshot of a dispatch's routing: hand it to ``dispatch(routing=)`` to repeat it, or to ``combine(routing=)``.

    The tensors are the caller's own; a handle made of their copies serves as well. It fits ops of the same
    configuration, and all ranks must use theirs of the same dispatch.

    Attributes:
        disp_dest_tok_id_map: int32 [tokens * top-k]: rank * max_recv + slot of the row that carries a choice; a number
            beyond all slots where a choice goes nowhere.
        inter_node_disp_dest_tok_id_map: int32, empty on host memory; so is inter_node_disp_send_map.
        total_recv_token_num: int32 [1]: how many rows this rank received.
        disp_tok_id_to_src_tok_id_local: int32 [rows]: where each came from, as get_dispatch_src_token_pos has it.
        cur_rank_num_token: how many tokens this rank dispatched.
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
        """Make a handle of what :meth:`tensors` returned."""
        if len(tensors) != 5:
            raise InvalidArgumentError(f"a routing handle has 5 tensors, got {len(tensors)}")
        slots, inter_node_slots, send_map, total, positions = tensors
        return cls(slots, inter_node_slots, send_map, total, positions, cur_rank_num_token)


def route(handle: Any, topk: int, place: int = arrays.HOST) -> tuple[Any, int, int]:
    """Return a handle's routing map, its tokens, and the rows that this rank received (on a GPU, their address)."""
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
    """Return the tokens of a handle, and the arrays that calls take of it."""
    return handle.cur_rank_num_token, handle.disp_dest_tok_id_map, handle.total_recv_token_num
