# SPDX-License-Identifier: MIT
"""The configuration of an op."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from .. import _core
from .._errors import InvalidArgumentError
from ._enums import EpDispatchCombineKernelType, _normalize_quant_type, quant_name


@dataclass
class EpDispatchCombineConfig:
    """The shape of an op. All ranks pass the same configuration, except for ``rank``.

    Attributes:
        data_type: element type of the tokens, from torch or numpy. Each call may use another type.
            This one only decides whether arrays returned before the first dispatch
            (``local_expert_count``) are torch's or numpy's.
        rank: this rank's number, equal to its PE number in mori.shmem.
        world_size: number of ranks; if larger than ``gpu_per_node``, a multiple of it.
        hidden_dim: most elements in a row. For packed float4, the number of bytes.
        scale_dim: number of scales dispatched with a row; 0 means none.
        scale_type_size: size of a scale in bytes.
        max_token_type_size: largest element size in bytes, over dispatch and combine.
        max_num_inp_token_per_rank: most tokens that a rank dispatches in one call.
        num_experts_per_rank: expert e is on rank ``e // num_experts_per_rank``.
        num_experts_per_token: experts that a token is routed to (top-k), at most 63.
        warp_num_per_block: launch hint, like block_num, rdma_block_num and num_qp_per_pe. Ignored
            on host memory.
        max_total_recv_tokens: most rows that a rank receives in one dispatch; 0 means no cap.
        use_external_inp_buf: if True, combine copies its input from any address. If False, the
            caller has put it into ``get_registered_combine_input_buffer``.
        kernel_type: decides which calls are available.
        gpu_per_node: ranks on one host.
        quant_type: how combine's rows are quantised for sending: "none", "fp8_direct_cast",
            "fp8_blockwise", or a member of EpDispatchCombineQuantType.
    """

    data_type: Any
    rank: int
    world_size: int
    hidden_dim: int
    scale_dim: int
    scale_type_size: int
    max_token_type_size: int
    max_num_inp_token_per_rank: int
    num_experts_per_rank: int
    num_experts_per_token: int
    warp_num_per_block: int = 8
    block_num: int = 80
    max_total_recv_tokens: int = 0
    use_external_inp_buf: bool = True
    kernel_type: EpDispatchCombineKernelType = EpDispatchCombineKernelType.IntraNode
    gpu_per_node: int = 8
    rdma_block_num: int = 0
    num_qp_per_pe: int = 1
    quant_type: Any = "none"


def to_json(config: Any) -> str:
    """Return the configuration of either class as JSON for native code, which checks the values.

    Raises TypeError with the field's name if a field is not a number.
    """
    if not is_dataclass(config):
        raise TypeError(f"config is {type(config).__name__}, want an EpDispatchCombineConfig")
    given: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name == "quant_type":
            given[field.name] = quant_name(_normalize_quant_type(value))
        elif field.name == "use_external_inp_buf":
            given[field.name] = bool(value)
        elif field.name != "data_type":
            given[field.name] = _number(field.name, value)
    return json.dumps(given)


def _number(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if not -(2**31) <= number < 2**31:
        raise InvalidArgumentError(f"{name} must fit into 32 bits, got {number}")
    return number


def sizes(config: Any) -> dict[str, int]:
    """Return the capacities of a configuration in tokens and rows."""
    answer: dict[str, int] = json.loads(_core.call("EPSizes", to_json(config)))
    return answer
