# SPDX-License-Identifier: MIT
"""Queries of an op and of its last dispatch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .. import _core
from .._errors import InvalidArgumentError
from . import _arrays as arrays
from . import _launch

if TYPE_CHECKING:
    from ._arrays import Kind
    from ._buffers import Buffers
    from ._config import EpDispatchCombineConfig


class Queries:
    """An op's calls that transfer nothing."""

    if TYPE_CHECKING:
        config: EpDispatchCombineConfig
        launch_config_mode: str
        _handle: int
        _place: int
        _sizes: dict[str, int]
        _buffers: Buffers
        _kind: Kind

        def _count_received(self) -> int: ...
        def _queue(self, kind: Kind) -> int: ...
        def _row_type(self, dtype: Any) -> int: ...

    @property
    def local_expert_count(self) -> Any:
        """Received choices of each expert of this rank, int32 [num_experts_per_rank].

        ``dispatch(call_local_expert_count=True)`` fills it, or :meth:`dispatch_recv` with two
        phases.
        """
        return self._buffers.local_counts(self._kind)

    def get_dispatch_src_token_pos(self) -> Any:
        """Return the source of each received row: int32 [total_recv], a copy. Empty after combine.

        :meth:`decode_send_flat_idx` decodes a value.
        """
        rows = self._count_received()
        return arrays.copy(self._kind, self._buffers.positions(self._kind), rows, self._queue(self._kind))

    def decode_send_flat_idx(self, v: Any) -> tuple[Any, Any]:
        """Return (source rank, token) of a value of :meth:`get_dispatch_src_token_pos`, or of an array of them.

        A value is rank * max_num_tokens_to_send() + token. With kernel type InterNode the factor is
        max_num_inp_token_per_rank instead.
        """
        stride = self._sizes["position_stride"]
        return v // stride, v % stride

    def get_registered_combine_input_buffer(self, dtype: Any, hidden_dim: int = -1) -> Any:
        """Return the buffer that combine reads in place: [max_recv, hidden_dim] of ``dtype``.

        Fill it between dispatch and combine. ``dtype`` is torch's or numpy's. -1 means the
        configuration's hidden_dim.
        """
        hidden = self.config.hidden_dim if hidden_dim < 0 else hidden_dim
        self._row_type(dtype)
        room = self.config.hidden_dim * self.config.max_token_type_size
        if not 0 < hidden <= self.config.hidden_dim or hidden * arrays.item_size(dtype) > room:
            raise InvalidArgumentError(
                f"rows of {hidden} elements of {arrays.name_of(dtype)}: the op has room for {self.config.hidden_dim} of"
                f" {self.config.max_token_type_size} bytes"
            )
        return self._buffers.combine_in(arrays.kind_of_dtype(dtype, self._place) or self._kind, dtype, hidden)

    def get_launch_config(
        self, is_dispatch: bool = True, block_num: int = -1, rdma_block_num: int = -1, warp_per_block: int = -1
    ) -> tuple[int, int, int]:
        """Return (block_num, rdma_block_num, warp_per_block) of a launch.

        On a GPU these are the settings for the most tokens and the longest rows; smaller calls may
        use less. On host memory nothing is launched; the result comes from the mode, the
        configuration and the arguments.
        """
        given = (block_num, rdma_block_num, warp_per_block)
        if self._place != arrays.HOST:
            c = self.config
            most = (c.max_num_inp_token_per_rank, c.hidden_dim * c.max_token_type_size, block_num, warp_per_block)
            blocks, warps = json.loads(_core.call("EPLaunch", self._handle, is_dispatch, *most))
            return blocks, max(rdma_block_num, c.rdma_block_num), warps
        return _launch.settings(self.config, self.launch_config_mode == "AUTO", is_dispatch, given)

    def max_num_tokens_to_send_per_rank(self) -> int:
        """Return the most tokens that a rank may dispatch."""
        return self._sizes["send_per_rank"]

    def max_num_tokens_to_send(self) -> int:
        """Return the most tokens that all ranks together may dispatch."""
        return self._sizes["send"]

    def max_num_tokens_to_recv_per_rank(self) -> int:
        """Return the most rows that a rank can receive from one source rank."""
        return self._sizes["recv_per_rank"]

    def max_num_tokens_to_recv(self) -> int:
        """Return the most rows that a rank can receive: max_recv."""
        return self._sizes["recv"]
