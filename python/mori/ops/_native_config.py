# SPDX-License-Identifier: MIT
"""mori.cpp.EpDispatchCombineConfig: the configuration of an op, as in the native library."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ._config import sizes
from ._enums import EpDispatchCombineKernelType, EpDispatchCombineQuantType


@dataclass
class EpDispatchCombineConfig:
    """Like :class:`mori.ops.EpDispatchCombineConfig`, without ``data_type`` and with ``quant_type`` as a member."""

    rank: int = 0
    world_size: int = 0
    hidden_dim: int = 0
    scale_dim: int = 0
    scale_type_size: int = 0
    max_token_type_size: int = 0
    max_num_inp_token_per_rank: int = 0
    num_experts_per_rank: int = 0
    num_experts_per_token: int = 0
    warp_num_per_block: int = 8
    block_num: int = 80
    max_total_recv_tokens: int = 0
    use_external_inp_buf: bool = True
    kernel_type: EpDispatchCombineKernelType = EpDispatchCombineKernelType.IntraNode
    gpu_per_node: int = 8
    rdma_block_num: int = 0
    num_qp_per_pe: int = 1
    quant_type: EpDispatchCombineQuantType = EpDispatchCombineQuantType.None_

    def max_num_tokens_to_send_per_rank(self) -> int:
        """Return the most tokens that a rank may dispatch."""
        return sizes(self)["send_per_rank"]

    def max_num_tokens_to_send(self) -> int:
        """Return the most tokens that all ranks together may dispatch."""
        return sizes(self)["send"]

    def max_num_tokens_to_recv_per_rank(self) -> int:
        """Return the most rows that a rank can receive from one source rank."""
        return sizes(self)["recv_per_rank"]

    def max_num_tokens_to_recv(self) -> int:
        """Return the most rows that a rank can receive."""
        return sizes(self)["recv"]

    def to_packed_array(self) -> list[int]:
        """Return all fields as numbers, in order."""
        return [int(getattr(self, field.name)) for field in fields(self)]
