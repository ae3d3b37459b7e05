# SPDX-License-Identifier: MIT
"""The standard-MoE layout, in which the rows of each expert are contiguous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core
from .._errors import BadStateError, InvalidArgumentError
from . import _arrays as arrays
from ._arrays import Kind
from ._enums import EpDispatchCombineKernelType

if TYPE_CHECKING:
    from ._buffers import Buffers
    from ._config import EpDispatchCombineConfig

_SERVED = (EpDispatchCombineKernelType.IntraNode, EpDispatchCombineKernelType.InterNodeV1LL)

Packed = tuple[Any, Any, Any, Any]


class StandardMoE:
    """An op's calls that convert rows to that layout and back.

    They need kernel type IntraNode or InterNodeV1LL.
    """

    if TYPE_CHECKING:
        config: EpDispatchCombineConfig
        _handle: int
        _place: int
        _buffers: Buffers
        _sizes: dict[str, int]
        _topk: int
        _received: int
        _has_weights: bool
        _has_packed: bool
        _is_quantised: bool

        def _row_type(self, dtype: Any) -> int: ...
        def _queue(self, kind: Kind) -> int: ...
        def dispatch(self, input: Any, weights: Any, scales: Any, indices: Any) -> Any: ...
        def combine(self, input: Any, weights: Any, indices: Any, *, use_external_inp_buf: int) -> tuple[Any, Any]: ...

    def dispatch_standard_moe(
        self,
        input: Any,
        weights: Any,
        scales: Any,
        indices: Any,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
    ) -> Packed:
        """Dispatch, and return the rows like :meth:`convert_dispatch_output`.

        The arguments are those of ``dispatch``.
        """
        self._check_standard("dispatch_standard_moe")
        out, _, _, out_indices, _ = self.dispatch(input, weights, scales, indices)
        return self.convert_dispatch_output(out, out_indices)

    def combine_standard_moe(
        self,
        input: Any,
        weights: Any,
        indices: Any,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
        call_reset: bool = False,
    ) -> tuple[Any, None]:
        """Combine the experts' results in that layout, [experts, world * max_inp, h].

        Multiplies the rows of each token by the weights that were dispatched with it. ``weights``
        is ignored. ``indices`` is what this rank gave to dispatch.

        Returns:
            (out [max_num_inp_token_per_rank, h], None)
        """
        self._check_standard("combine_standard_moe")
        summed = self.convert_combine_input(input, None, None)
        out, _ = self.combine(summed, None, indices, use_external_inp_buf=1)
        return out, None

    def convert_dispatch_output(
        self,
        dispatch_out_x: Any,
        dispatch_out_topk_idx: Any,
        block_num: int = -1,
        warp_per_block: int = -1,
    ) -> Packed:
        """Convert the received rows, as dispatch returned them, to that layout.

        Returns:
            (packed_recv_x [experts, world * max_inp, h], packed_recv_count int32 [experts],
            packed_recv_src_info int32 [experts, world * max_inp]: the received row of each,
            packed_recv_layout_range: empty int64). The op owns them, and the next conversion
            overwrites them. Entries after an expert's last row are undefined.
        """
        self._check_standard("convert_dispatch_output")
        kind = arrays.kind_of(dispatch_out_x, "dispatch_out_x", self._place)
        dtype = dispatch_out_x.dtype
        number = self._row_type(dtype)
        rows, hidden = arrays.matrix(dispatch_out_x, "dispatch_out_x")
        index_kind = arrays.kind_of(dispatch_out_topk_idx, "dispatch_out_topk_idx", self._place)
        given, _ = arrays.matrix(dispatch_out_topk_idx, "dispatch_out_topk_idx")
        arrays.check(dispatch_out_topk_idx, "dispatch_out_topk_idx", (given, self._topk), "int32", self._place)
        # On a GPU the number of received rows is not known on the host.
        known = self._place == arrays.HOST
        received, say = (self._received, "were") if known else (self._sizes["recv"], "may have been")
        if min(rows, given) < received:
            raise InvalidArgumentError(f"{rows} rows and {given} rows of indices, and {received} {say} received")
        _check_contiguous(kind, dispatch_out_x, "dispatch_out_x")
        _check_contiguous(index_kind, dispatch_out_topk_idx, "dispatch_out_topk_idx")
        experts, room = self.config.num_experts_per_rank, self._sizes["packed_rows"]
        packed = self._buffers.own(kind, "packed", (experts, room, hidden), dtype)
        counts = self._buffers.own(kind, "packed counts", (experts,), "int32")
        info = self._buffers.own(kind, "packed info", (experts, room), "int32")
        ranges = self._buffers.own(kind, "packed ranges", (0,), "int64")
        to = [arrays.address(kind, array) for array in (packed, counts, info, dispatch_out_x)]
        indices = arrays.address(index_kind, dispatch_out_topk_idx)
        _core.call("EPPack", self._handle, *to, indices, received, hidden, number, self._queue(kind))
        self._has_packed = True
        return packed, counts, info, ranges

    def convert_combine_input(
        self,
        packed_recv_x: Any,
        packed_recv_src_info: Any,
        packed_recv_layout_range: Any,
        block_num: int = -1,
        warp_per_block: int = -1,
    ) -> Any:
        """Sum the experts' results for each received row, multiplied by the row's weights for them.

        Args:
            packed_recv_x: [experts, world * max_inp, h], in the layout of the last conversion; the
                type may differ.
            packed_recv_src_info, packed_recv_layout_range: ignored; the op remembers the last
                conversion.

        Returns:
            [max_recv, h], for combine: the registered buffer, unless combine quantises the rows
            that it sends.

        Raises:
            BadStateError: nothing was converted since the last dispatch, or it had no weights.
        """
        self._check_standard("convert_combine_input")
        kind = arrays.kind_of(packed_recv_x, "packed_recv_x", self._place)
        dtype = packed_recv_x.dtype
        number = self._row_type(dtype)
        wanted = (self.config.num_experts_per_rank, self._sizes["packed_rows"])
        shape = tuple(packed_recv_x.shape)
        if len(shape) != 3 or shape[:2] != wanted:
            raise InvalidArgumentError(f"packed_recv_x has the shape {shape}, want {wanted} and the elements of a row")
        _check_contiguous(kind, packed_recv_x, "packed_recv_x")
        if not self._has_packed or not self._has_weights:
            lacking = "weights" if self._has_packed else "a conversion into the standard-MoE form"
            raise BadStateError(f"convert_combine_input after a dispatch without {lacking}")
        hidden = shape[2]
        if self._is_quantised:
            summed = self._buffers.own(kind, "summed", (self._sizes["recv"], hidden), dtype)
        else:
            summed = self._buffers.combine_in(kind, dtype, hidden)
        source = arrays.address(kind, packed_recv_x)
        _core.call("EPUnpack", self._handle, arrays.address(kind, summed), source, hidden, number, self._queue(kind))
        return summed

    def _check_standard(self, act: str) -> None:
        if self.config.kernel_type not in _SERVED:
            raise InvalidArgumentError(
                f"{act} needs kernel_type IntraNode or InterNodeV1LL, this op has {self.config.kernel_type}"
            )


def _check_contiguous(kind: Kind, array: Any, what: str) -> None:
    if not arrays.contiguous(kind, array):
        raise InvalidArgumentError(f"{what} must be contiguous")
