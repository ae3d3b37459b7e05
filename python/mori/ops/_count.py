# SPDX-License-Identifier: MIT
"""Counting choices by raw addresses."""

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
    """Count how many choices of received rows name each expert of ``config.rank``.

    Args:
        config: whose expert is where; ``mori.cpp.EpDispatchCombineConfig`` serves too.
        indices_ptr: host address of int32 [rows, top-k].
        total_recv_token_num_ptr: host address of the int32 with the number of rows.
        local_expert_count_ptr: host address of int32 [num_experts_per_rank], which is overwritten.
        block_num, warp_per_block: hints; at or below 0 the configuration's count.
        stream: host memory has none; 0 or None.

    Raises:
        RuntimeError: a hint is not positive, nor what the configuration has.
        ValueError: an address is 0, or there are more rows than a rank can receive.
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
