# SPDX-License-Identifier: MIT
"""Dispatch and combine of a mixture-of-experts layer."""

from __future__ import annotations

import contextlib
import json
import sys
import weakref
from typing import Any

from .. import _core
from .._errors import BadStateError, ForkError, InvalidArgumentError, MoriError, ReceiveCapError
from ..shmem import _native as _shmem
from ..tensor_utils import DTYPE_TO_INT, GpuTensorView
from . import _arrays as arrays
from . import _launch
from ._arrays import Kind
from ._buffers import Buffers
from ._config import EpDispatchCombineConfig, to_json
from ._enums import EpDispatchCombineKernelType, EpDispatchCombineQuantType, _normalize_quant_type
from ._health import Health
from ._queries import Queries
from ._routing import EpDispatchRoutingHandle, parts, route
from ._standard import StandardMoE

# Flags of the native calls; keep in step with pybind/fast_ep.h.
_SEND, _COUNT, _ROUTE, _IN_PLACE, _WEIGHTED, _HAS_WEIGHTS = 1, 2, 4, 8, 16, 32

_ROW_TYPES = {name: number for name, number in DTYPE_TO_INT.items() if name != "int32"}
_WITH_ROUTING = (EpDispatchCombineKernelType.IntraNode, EpDispatchCombineKernelType.InterNodeV1)

Dispatched = tuple[Any, Any, Any, Any, Any]


class _Memory:
    """An op's symmetric memory. The op and all arrays over it hold a reference to this object."""


# Arrays of ops that were dropped between send and recv: native code may still read them.
_abandoned: list[Any] = []


class EpDispatchCombineOp(StandardMoE, Health, Queries):
    """Dispatch and combine, as one rank sees them.

    Making an op is collective: all ranks do it, with the same configuration. ``dispatch`` sends
    each token to every rank that has one of its experts. ``combine`` returns the experts' results
    to the tokens' ranks and sums them. All ranks call both alternately, equally often.

    **Where.** The op is on a GPU if the symmetric heap is there, unless its ``data_type`` is
    numpy's or ``MORI_EP_DEVICE`` is host.

    **Arrays.** They must be contiguous. On host memory they are torch CPU tensors or numpy arrays.
    On a GPU they are torch tensors or arrays with ``__cuda_array_interface__`` on that GPU.

    **Results.** They have the kind of ``input``. They are views of the op's buffers, the same ones
    each time. The next dispatch or combine overwrites them. Do not use them after :meth:`close` or
    ``shmem_finalize``.

    **Waiting.** A call waits for other ranks for at most ``MORI_EP_TIMEOUT_MS`` (30000). Ctrl-C
    interrupts it.

    **Errors.** The op is broken after a call that times out, or whose peer died or made another
    call: every later call raises. Invalid arguments leave the op unchanged.

    **Threads.** Only one thread may use an op at a time.

    **On a GPU** calls queue their work on a stream and return at once. They can be captured into
    graphs. The next call or :meth:`check` raises the errors. Keep arrays alive until the stream has
    done the work.

    Attributes:
        config: the op's configuration.
        stream: on a GPU, the stream on which calls queue their work: a handle, or an object with
            ``cuda_stream``, to which the op holds a reference. With None, calls use torch's current
            stream for torch tensors, else the default stream. A stream given as a bare handle must
            outlive the op.
        launch_config_mode: "MANUAL" or "AUTO", from MORI_EP_LAUNCH_CONFIG_MODE.
        auto_block_num: launch setting of AUTO, like auto_rdma_block_num and auto_warp_per_block;
            ignored on host memory.

    Raises:
        RuntimeError: mori.shmem is not initialised, or the symmetric heap is too small
            (``MORI_SHMEM_HEAP_SIZE``).
        ValueError: a field of the configuration, its quant_type or the launch mode is invalid, or
            rank and world_size differ from mori.shmem's.
    """

    stream: Any = None

    def __init__(self, config: EpDispatchCombineConfig) -> None:
        self.config = config
        quant_type = _normalize_quant_type(config.quant_type)
        self.launch_config_mode = _launch.mode()
        self.auto_block_num, self.auto_rdma_block_num, self.auto_warp_per_block = _launch.automatic(config.kernel_type)
        is_numpy = arrays.kind_of_dtype(config.data_type) == "numpy"  # never on a GPU
        _torch_barrier(config)
        self._handle = _shmem.collective("EPOpen", to_json(config), is_numpy)
        described = json.loads(_core.call("EPDescribe", self._handle))
        _torch_barrier(config)

        self._kept: list[Any] = []  # arrays that native code reads until recv
        memory = _Memory()
        self._streams: dict[int, Any] = {}  # streams that native code may still use
        self._drop = weakref.finalize(memory, _drop, self._handle, self._kept, self._streams)
        self._drop.atexit = False
        self._fast = _core.fast()
        self._place: int = described["device"]
        self._sizes: dict[str, int] = described["sizes"]
        self._topk = int(config.num_experts_per_token)
        self._buffers = Buffers(memory, described, self._topk, int(config.scale_dim), int(config.num_experts_per_rank))
        self._fp8_blockwise_combine_scale_dim: int = described["scale_blocks"]
        self._is_split = config.kernel_type == EpDispatchCombineKernelType.AsyncLL
        self._is_quantised = quant_type != EpDispatchCombineQuantType.None_
        self._kind: Kind = arrays.kind_of_dtype(config.data_type, self._place) or self._plain
        self._again = None if self._place == arrays.HOST else self._fast.ep_again(GpuTensorView, self._place)
        self._like: tuple[Kind, int, bool] = (self._kind, -1, False)  # dispatch of _again
        self._like_kind = self._kind  # combine of _again
        self._tokens = -1  # tokens of the last dispatch; -1 before the first
        self._received = 0
        self._has_weights = False
        self._has_packed = False
        self._dispatching = self._combining = ""  # "sent", or "done" by a call that needed no recv

    def __repr__(self) -> str:
        c = self.config
        return f"<EpDispatchCombineOp {c.kernel_type} rank {c.rank} of {c.world_size}, hidden_dim {c.hidden_dim}>"

    def close(self) -> None:
        """Free the op's symmetric memory. Collective. Do not use its results afterwards.

        Without this call, the memory is freed when the next op is made, once all ranks have dropped
        the op and all its results.
        """
        if self._handle:
            _shmem.collective("EPClose", self._handle)
            self._drop.detach()
            self._handle = 0
            self._kept.clear()
            self._streams.clear()

    # Dispatch

    def dispatch(
        self,
        input: Any,
        weights: Any,
        scales: Any,
        indices: Any,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
        call_local_expert_count: bool = False,
        *,
        routing: EpDispatchRoutingHandle | None = None,
        return_routing: bool = False,
    ) -> Any:
        """Send each of this rank's n tokens once to every rank that has one of its experts.

        Args:
            input: [n, h], of bfloat16, float32, float8_e4m3fn, float8_e4m3fnuz or float4_e2m1fn_x2; h is at most
                ``hidden_dim``. n may be 0 and differ between ranks; h and the type are the same on all.
            weights: float32 [n, top-k], or None.
            scales: [n, scale_dim] of any type of ``scale_type_size`` bytes, or None. Ignored if
                scale_dim is 0.
            indices: int32 [n, top-k]: the experts of each token. A number of no expert is ignored.
            block_num, rdma_block_num, warp_per_block: launch hints, ignored on host memory.
            call_local_expert_count: also fill ``local_expert_count``.
            routing: handle of an earlier dispatch to repeat, with the same n. The rows get the same
                slots.
            return_routing: return a handle of this dispatch as sixth result.

        Returns:
            (out [max_recv, h], out_weights float32 [max_recv, top-k], out_scales [max_recv,
            scale_dim] or None, out_indices int32 [max_recv, top-k], total_recv int32 [1]). Only the
            first total_recv rows are defined. They are ordered by source rank, then by token. Each
            row has all experts and weights of its token. If weights was None, out_weights is
            undefined.

        Raises:
            KeyError: the element type of ``input`` is not supported.
            ValueError, TypeError: an array has the wrong shape, type or kind, or is not contiguous,
                or there are too many tokens.
            UnsupportedError: an array is not where the op is (a GPU or host memory).
            ReceiveCapError: this rank's rows exceed ``max_total_recv_tokens`` at a receiving rank.
                This rank sent nothing, its next combine gives zeros, and all ranks continue.
            NotImplementedError: the kernel type does not support routing handles.
            MoriTimeoutError, PEFailedError, MismatchError: ranks did not arrive in time, died, or
                made another call. The message names them.
        """
        if return_routing or routing is not None:
            self._check_routing("dispatch", routing is not None and return_routing)
        flags = _COUNT if call_local_expert_count else 0
        results = self._dispatch(input, weights, scales, indices, flags, routing, block_num, warp_per_block)
        if self._is_split:
            self._dispatching = "done"
        return (*results, self._snapshot(self._kind)) if return_routing else results

    def dispatch_send(
        self,
        input: Any,
        weights: Any,
        scales: Any,
        indices: Any,
        block_num: int = -1,
        warp_per_block: int = -1,
        call_local_expert_count: bool = False,
    ) -> Dispatched:
        """Begin a :meth:`dispatch` and return its result arrays, which :meth:`dispatch_recv` fills.

        The op holds references to the input arrays until then. The caller must not change them.
        Needs kernel type AsyncLL.
        """
        self._check_split("dispatch_send")
        results = self._dispatch(input, weights, scales, indices, _SEND, None, block_num, warp_per_block)
        self._kept += input, weights, scales, indices
        self._dispatching = "sent"
        return results

    def dispatch_recv(
        self, block_num: int = -1, warp_per_block: int = -1, call_local_expert_count: bool = False
    ) -> None:
        """Complete a :meth:`dispatch_send`. Raises like :meth:`dispatch`.

        It may be called again after Ctrl-C.

        Raises:
            ValueError: the kernel type is not AsyncLL.
            AssertionError: no dispatch was begun.
        """
        self._check_split("dispatch_recv")
        assert self._dispatching, "dispatch_recv without dispatch_send"
        flags = _COUNT if call_local_expert_count else 0
        if self._dispatching == "sent":
            self._received = self._receive(False, flags)
        elif flags:
            _core.call("EPCountLocal", self._handle)
        self._dispatching = ""

    def _dispatch(
        self,
        input: Any,
        weights: Any,
        scales: Any,
        indices: Any,
        flags: int,
        routing: Any,
        blocks: int,
        warps: int,
    ) -> Dispatched:
        if self._again is not None and (routing is None or type(routing) is EpDispatchRoutingHandle):
            tokens, slots, total = (0, None, None) if routing is None else parts(routing)
            given = (input, indices, weights, scales, slots, total)
            queue = self._queue(self._like[0])
            try:
                results: Dispatched | None = self._again.call(
                    False, self._handle, flags, queue, blocks, warps, tokens, given
                )
            except ReceiveCapError:
                self._begun(*self._like)
                raise
            if results is not None:
                kind, n, has_weights = self._like
                self._begun(kind, n, has_weights)
                self._received = 0
                return results
        return self._dispatch_checked(input, weights, scales, indices, flags, routing, blocks, warps)

    def _dispatch_checked(
        self,
        input: Any,
        weights: Any,
        scales: Any,
        indices: Any,
        flags: int,
        routing: Any,
        blocks: int,
        warps: int,
    ) -> Dispatched:
        """Dispatch after checking all arguments."""
        kind = arrays.kind_of(input, "input", self._place)
        dtype = input.dtype
        number = self._row_type(dtype)
        n, hidden = arrays.matrix(input, "input")
        choices = (n, self._topk)
        arrays.check(indices, "indices", choices, "int32", self._place)
        if weights is not None:
            arrays.check(weights, "weights", choices, "float32", self._place)
        scale_dtype = None
        if scales is not None:
            scales = self._check_scales(scales, n)
            scale_dtype = None if scales is None else scales.dtype
        slots, route_n, route_rows = None, 0, 0
        if routing is not None:
            slots, route_n, route_rows = route(routing, self._topk, self._place)
            flags |= _ROUTE
        queue = self._queue(kind)
        sent = self._operands(input=input, indices=indices, weights=weights, scales=scales)
        try:
            self._received = self._fast.ep_dispatch(
                self._handle, flags, n, hidden, number, *sent, slots, route_n, route_rows, queue, blocks, warps
            )
        except ReceiveCapError:
            self._begun(kind, n, weights is not None)
            if self._place == arrays.HOST:
                self._received = self._count_received()
            raise
        self._begun(kind, n, weights is not None)
        results = self._buffers.dispatched(kind, dtype, hidden, scale_dtype)
        if self._again is not None:
            self._like = kind, n, weights is not None
            tokens, slots, total = (0, None, None) if routing is None else parts(routing)
            given = (input, indices, weights, scales, slots, total)
            self._again.keep(False, results, n, hidden, number, flags & _ROUTE, tokens, given)
        return results

    def _begun(self, kind: Kind, n: int, has_weights: bool) -> None:
        """Record the properties of the dispatch just begun."""
        self._kind, self._tokens, self._has_weights = kind, n, has_weights
        self._has_packed = False
        self._combining = ""

    @property
    def _plain(self) -> Kind:
        """The kind of arrays that needs no torch."""
        return "numpy" if self._place == arrays.HOST else "gpu"

    def _operands(self, **given: Any) -> list[Any]:
        """Convert arrays for native calls."""
        if self._place == arrays.HOST:
            return list(given.values())
        return [None if array is None else arrays.device_address(array, what) for what, array in given.items()]

    def _queue(self, kind: Kind) -> int:
        """Return the handle of the stream for a call with arrays of ``kind``."""
        stream = self.stream
        if stream is not None:
            handle = int(getattr(stream, "cuda_stream", stream))
            self._streams[handle] = stream
            return handle
        if kind == "gpu_torch":
            return _current_stream(sys.modules["torch"], self._place)
        return 0

    def _row_type(self, dtype: Any) -> int:
        name = arrays.name_of(dtype)
        number = _ROW_TYPES.get(name)
        if number is None:
            raise KeyError(f"rows of {name} are not supported; supported are {', '.join(_ROW_TYPES)}")
        return number

    def _check_scales(self, scales: Any, n: int) -> Any:
        c = self.config
        if c.scale_dim == 0:
            return None
        name = arrays.name_of(scales.dtype) if hasattr(scales, "dtype") else ""
        arrays.check(scales, "scales", (n, c.scale_dim), name, self._place)
        if arrays.item_size(scales.dtype) != c.scale_type_size:
            raise InvalidArgumentError(
                f"scales have {arrays.item_size(scales.dtype)} bytes each ({name}), want {c.scale_type_size} by"
                " scale_type_size"
            )
        return scales

    # Combine

    def combine(
        self,
        input: Any,
        weights: Any,
        indices: Any,
        block_num: int = -1,
        rdma_block_num: int = -1,
        warp_per_block: int = -1,
        use_external_inp_buf: int = -1,
        call_reset: bool = False,
        *,
        routing: EpDispatchRoutingHandle | None = None,
        weighted: bool = False,
    ) -> tuple[Any, Any]:
        """Send the experts' results back to the tokens' ranks and sum them there.

        Args:
            input: [rows, h], in the order of the rows from dispatch, at least as many; of bfloat16,
                float32 or float8. h and the type are the same on all ranks and may differ from
                dispatch's.
            weights: float32 [rows, top-k], usually those that dispatch returned; or None, or empty.
            indices: the indices that this rank passed to dispatch, [n, top-k].
            block_num, rdma_block_num, warp_per_block: as in :meth:`dispatch`.
            use_external_inp_buf: 1 reads the rows from ``input``. 0 reads them from
                :meth:`get_registered_combine_input_buffer`, and ``input`` only gives h and the
                type. -1 takes the configuration's setting.
            call_reset: accepted but ignored.
            routing: handle of the dispatch that delivered the rows, if it is not the last one.
                total_recv is then left unchanged.
            weighted: multiply each rank's row by the sum of the weights that the last dispatch had
                for the token's experts there. With ``routing``, the last dispatch must have used
                that routing.

        Returns:
            (out [max_num_inp_token_per_rank, h], out_weights float32 [.., top-k], or None without
            weights). Only the first n rows of both are defined. out[t] is the sum over the ranks
            that token t was sent to. It is computed in float32, rounded once, and unweighted unless
            ``weighted``. out_weights[t] is the sum of the weights rows of those ranks. A token that
            was sent to no rank gives zeros.

        Raises:
            ValueError: the number of rows in indices is not the dispatch's number of tokens, input
                has fewer rows than were received, quant_type does not support this call, or as in
                :meth:`dispatch`.
            KeyError, TypeError, MoriTimeoutError, PEFailedError, MismatchError: as in :meth:`dispatch`.
        """
        flags = _WEIGHTED if weighted else 0
        results = self._combine(
            input, weights, indices, use_external_inp_buf, routing, flags, block_num, warp_per_block
        )
        if self._is_split:
            self._combining = "done"
        return results

    def combine_send(
        self,
        input: Any,
        weights: Any,
        indices: Any,
        block_num: int = -1,
        warp_per_block: int = -1,
        *,
        weighted: bool = False,
    ) -> tuple[Any, Any]:
        """Begin a :meth:`combine` and return its result arrays, which :meth:`combine_recv` fills.

        Needs kernel type AsyncLL.
        """
        self._check_split("combine_send")
        flags = _SEND | (_WEIGHTED if weighted else 0)
        results = self._combine(input, weights, indices, -1, None, flags, block_num, warp_per_block)
        self._kept += input, weights
        self._combining = "sent"
        return results

    def combine_recv(self, block_num: int = -1, warp_per_block: int = -1) -> None:
        """Complete a :meth:`combine_send`. Raises like :meth:`dispatch_recv`."""
        self._check_split("combine_recv")
        assert self._combining, "combine_recv without combine_send"
        if self._combining == "sent":
            self._receive(True, 0)
        self._combining = ""

    def _combine(
        self,
        input: Any,
        weights: Any,
        indices: Any,
        external: int,
        routing: Any,
        flags: int,
        blocks: int,
        warps: int,
    ) -> tuple[Any, Any]:
        if external == 0 or (external < 0 and not self.config.use_external_inp_buf):
            flags |= _IN_PLACE
        if self._again is not None and (routing is None or type(routing) is EpDispatchRoutingHandle):
            tokens, slots, total = (self._tokens, None, None) if routing is None else parts(routing)
            given = (input, indices, weights, None, slots, total)
            queue = self._queue(self._like_kind)
            results: tuple[Any, Any] | None = self._again.call(
                True, self._handle, flags, queue, blocks, warps, tokens, given
            )
            if results is not None:
                self._answered(routing)
                return results
        return self._combine_checked(input, weights, indices, routing, flags, blocks, warps)

    def _combine_checked(
        self,
        input: Any,
        weights: Any,
        indices: Any,
        routing: Any,
        flags: int,
        blocks: int,
        warps: int,
    ) -> tuple[Any, Any]:
        """Combine after checking all arguments."""
        kind = arrays.kind_of(input, "input", self._place)
        dtype = input.dtype
        number = self._row_type(dtype)
        rows, hidden = arrays.matrix(input, "input")
        slots, tokens, received = None, self._tokens, self._received
        if routing is not None:
            self._check_routing("combine", False)
            slots, tokens, received = route(routing, self._topk, self._place)
            flags |= _ROUTE
        elif tokens < 0:
            raise BadStateError("combine before the first dispatch")
        self._check_indices(indices, tokens)
        least = received if self._place == arrays.HOST else 0  # on a GPU the kernel checks
        has_weights = weights is not None and self._check_weights(weights, least)
        if has_weights:
            flags |= _HAS_WEIGHTS
        else:
            weights = None
        if has_weights:
            rows = min(rows, weights.shape[0])
        made = self._operands(input=input, weights=weights)
        queue = self._queue(kind)
        self._fast.ep_combine(
            self._handle, flags, rows, hidden, number, *made, slots, tokens, received, queue, blocks, warps
        )
        self._answered(routing)
        results = self._buffers.combined(kind, dtype, hidden, has_weights)
        if self._again is not None:
            self._like_kind = kind
            _, slots, total = (tokens, None, None) if routing is None else parts(routing)
            given = (input, indices, weights, None, slots, total)
            self._again.keep(True, results, rows, hidden, number, flags & (_ROUTE | _HAS_WEIGHTS), tokens, given)
        return results

    def _answered(self, routing: Any) -> None:
        """Record that a combine was made."""
        if routing is None:
            self._received = 0
        self._dispatching = ""

    def _check_indices(self, indices: Any, tokens: int) -> None:
        arrays.kind_of(indices, "indices", self._place)
        n, _ = arrays.matrix(indices, "indices")
        if n != tokens:
            raise InvalidArgumentError(
                f"indices has {n} rows, and the dispatch had {tokens} tokens: combine takes the indices that this rank"
                " gave to dispatch (issue 475)"
            )
        arrays.check(indices, "indices", (tokens, self._topk), "int32", self._place)

    def _check_weights(self, weights: Any, received: int) -> bool:
        """Report whether the array holds weights; an empty one does not."""
        arrays.kind_of(weights, "weights", self._place)
        shape = tuple(weights.shape)
        if 0 in shape:
            return False
        if len(shape) != 2 or shape[1] != self._topk or shape[0] < received:
            raise InvalidArgumentError(f"weights has the shape {shape}, want ({received} or more, {self._topk})")
        arrays.check(weights, "weights", (shape[0], shape[1]), "float32", self._place)
        return True

    def _receive(self, is_combine: bool, flags: int) -> int:
        """End a phase. If a signal handler raises, the phase stays open for another try."""
        try:
            rows: int = self._fast.ep_recv(self._handle, is_combine, flags, self._queue(self._kind))
        except MoriError as err:
            self._dispatching = self._combining = ""
            if isinstance(err, ReceiveCapError) and self._place == arrays.HOST:
                self._received = self._count_received()
            raise
        self._kept.clear()
        return rows

    def _count_received(self) -> int:
        rows: int = _core.call("EPReceived", self._handle)
        return rows

    def _check_split(self, act: str) -> None:
        if not self._is_split:
            raise InvalidArgumentError(f"{act} needs kernel_type AsyncLL, this op has {self.config.kernel_type}")

    def _check_routing(self, act: str, both: bool) -> None:
        if self.config.kernel_type not in _WITH_ROUTING:
            raise NotImplementedError(
                f"{act} with a routing handle needs kernel_type IntraNode or InterNodeV1, this op has"
                f" {self.config.kernel_type}"
            )
        if both:
            raise InvalidArgumentError("dispatch takes routing or return_routing, not both")

    def _snapshot(self, kind: Kind) -> EpDispatchRoutingHandle:
        choices, place, queue = self._tokens * self._topk, self._place, self._queue(kind)
        slots = arrays.empty(kind, (choices,), "int32", place)
        _core.call("EPSlots", self._handle, arrays.address(kind, slots), choices)
        total = arrays.copy(kind, self._buffers.total(kind), 1, queue)
        rows = self._received if place == arrays.HOST else self._sizes["recv"]
        positions = arrays.copy(kind, self._buffers.positions(kind), rows, queue)
        none = (arrays.empty(kind, (0,), "int32", place), arrays.empty(kind, (0,), "int32", place))
        return EpDispatchRoutingHandle(slots, *none, total, positions, self._tokens)

    def reset(self) -> None:
        """Do nothing: calls leave no state that needs a reset."""


def _current_stream(torch: Any, device: int) -> int:
    """Return the handle of torch's current stream.

    Uses the fast function that torch's own compilers call. Under torch.compile, current_stream()
    returns an object without a handle.
    """
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    handle: int = quick(device) if quick is not None else torch.cuda.current_stream(device).cuda_stream
    return handle


def _drop(handle: int, kept: list[Any], _streams: dict[int, Any]) -> None:
    """Release an op after its last reference is dropped. ``_streams`` is kept alive until then."""
    if kept:
        _abandoned.append(kept)
    with contextlib.suppress(ForkError):  # in a forked child: the op belongs to the parent
        _core.call("EPDrop", handle)


def _torch_barrier(config: EpDispatchCombineConfig) -> None:
    """Run a barrier of torch.distributed if its ranks are the op's, so that queued work is done."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return
    same = (distributed.get_rank(), distributed.get_world_size()) == (config.rank, config.world_size)
    if same and distributed.get_backend() != "nccl":  # a barrier over nccl needs a GPU
        distributed.barrier()
