# SPDX-License-Identifier: MIT
"""What an op is made with."""

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
    """The shape of an op. All ranks give the same, but for ``rank``.

    Attributes:
        data_type: element type of the tokens, torch's or numpy's. Informational: each call brings its own. It decides
            whether what the op returns before its first dispatch (``local_expert_count``) is torch's or numpy's.
        rank: this rank, which is its PE in mori.shmem.
        world_size: how many ranks there are; a multiple of ``gpu_per_node`` where it is larger.
        hidden_dim: most elements of a row. For packed float4 the number of bytes.
        scale_dim: scales dispatched with a row; 0: none.
        scale_type_size: bytes of a scale.
        max_token_type_size: most bytes of an element, over dispatch and combine.
        max_num_inp_token_per_rank: most tokens in one dispatch of a rank.
        num_experts_per_rank: expert e lives on rank ``e // num_experts_per_rank``.
        num_experts_per_token: experts that a token chooses (top-k), at most 63.
        warp_num_per_block: hint for a launch; so are block_num, rdma_block_num and num_qp_per_pe. Host memory has none.
        max_total_recv_tokens: cap on the rows that a rank receives in one dispatch; 0: none.
        use_external_inp_buf: combine copies its input from anywhere. False: the caller has put it into
            ``get_registered_combine_input_buffer``.
        kernel_type: which calls there are.
        gpu_per_node: ranks of a host.
        quant_type: how combine's rows travel: "none", "fp8_direct_cast", "fp8_blockwise", or a member of
            EpDispatchCombineQuantType.
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
    """Return what the native side reads of either kind of configuration.

    TypeError names a field that is no number; values are checked there.
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
    """Return how many tokens and rows a configuration has room for."""
    answer: dict[str, int] = json.loads(_core.call("EPSizes", to_json(config)))
    return answer
