# SPDX-License-Identifier: MIT
"""Counting the rows per expert, at raw addresses."""

from __future__ import annotations

import ctypes
import operator
from typing import Any

from .. import _core
from .._errors import InvalidArgumentError, UnsupportedError
from . import _launch
from ._config import to_json


def launch_local_expert_count(
    config: Any,
    indices_ptr: int,
    total_recv_token_num_ptr: int,
    local_expert_count_ptr: int,
    block_num: int = -1,
    warp_per_block: int = -1,
    stream: Any = 0,
) -> None:
    """Count, for each expert of ``config.rank``, the choices of it in the received rows.

    Args:
        config: says which expert is on which rank; may be a ``mori.cpp.EpDispatchCombineConfig``.
        indices_ptr: host address of int32 [rows, top-k].
        total_recv_token_num_ptr: host address of the int32 with the number of rows.
        local_expert_count_ptr: host address of int32 [num_experts_per_rank], which is overwritten.
        block_num, warp_per_block: launch hints; 0 or less takes the configuration's.
        stream: 0 or None: host memory has no streams.

    Raises:
        RuntimeError: neither a hint nor the configuration's value is positive.
        ValueError: an address is 0, or the row count exceeds what a rank can receive.
    """
    _launch.require_positive(config, block_num, warp_per_block)
    if stream not in (0, None):
        raise UnsupportedError(f"stream {stream!r}: the addresses are of host memory, which has no streams")
    pointers = {
        "indices_ptr": indices_ptr,
        "total_recv_token_num_ptr": total_recv_token_num_ptr,
        "local_expert_count_ptr": local_expert_count_ptr,
    }
    for name, pointer in pointers.items():
        if not 0 < operator.index(pointer) < 2**64:
            raise InvalidArgumentError(f"{name} {pointer} is not an address")
    rows = ctypes.c_int32.from_address(total_recv_token_num_ptr).value
    _core.call("EPCount", to_json(config), local_expert_count_ptr, indices_ptr, rows)
