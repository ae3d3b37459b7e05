# SPDX-License-Identifier: MIT
"""Queries of an op, and of what its last dispatch brought."""

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
    """The calls of an op that move nothing."""

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
        """How many choices of the received rows name each expert of this rank: int32 [num_experts_per_rank].

        Filled by ``dispatch(call_local_expert_count=True)``, or by :meth:`dispatch_recv` if there are two phases.
        """
        return self._buffers.local_counts(self._kind)

    def get_dispatch_src_token_pos(self) -> Any:
        """Return where each received row came from: int32 [total_recv], the caller's own. Empty after combine.

        :meth:`decode_send_flat_idx` takes a value apart.
        """
        rows = self._count_received()
        return arrays.copy(self._kind, self._buffers.positions(self._kind), rows, self._queue(self._kind))

    def decode_send_flat_idx(self, v: Any) -> tuple[Any, Any]:
        """Return (source rank, token) of a value of :meth:`get_dispatch_src_token_pos`, or of an array of them.

        It is rank * max_num_tokens_to_send() + token; with kernel type InterNode the factor is
        max_num_inp_token_per_rank.
        """
        stride = self._sizes["position_stride"]
        return v // stride, v % stride

    def get_registered_combine_input_buffer(self, dtype: Any, hidden_dim: int = -1) -> Any:
        """Return the buffer that combine reads in place: [max_recv, hidden_dim] of ``dtype``, torch's or numpy's.

        Fill it between dispatch and combine. -1 stands for the configuration's hidden_dim.
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

        On a GPU, of a call with as many tokens and as long rows as there may be; with fewer it may get less. Host
        memory has no launches, and returns what the mode, the configuration and the arguments have.
        """
        given = (block_num, rdma_block_num, warp_per_block)
        if self._place != arrays.HOST:
            c = self.config
            most = (c.max_num_inp_token_per_rank, c.hidden_dim * c.max_token_type_size, block_num, warp_per_block)
            blocks, warps = json.loads(_core.call("EPLaunch", self._handle, is_dispatch, *most))
            return blocks, max(rdma_block_num, c.rdma_block_num), warps
        return _launch.settings(self.config, self.launch_config_mode == "AUTO", is_dispatch, given)

    def max_num_tokens_to_send_per_rank(self) -> int:
        """Return how many tokens a rank may dispatch."""
        return self._sizes["send_per_rank"]

    def max_num_tokens_to_send(self) -> int:
        """Return how many tokens all ranks together may dispatch."""
        return self._sizes["send"]

    def max_num_tokens_to_recv_per_rank(self) -> int:
        """Return how many rows a rank has room for, for each source."""
        return self._sizes["recv_per_rank"]

    def max_num_tokens_to_recv(self) -> int:
        """Return how many rows a rank has room for: max_recv."""
        return self._sizes["recv"]
