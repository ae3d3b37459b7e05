# SPDX-License-Identifier: MIT
"""A rank of `mori bench ep`, on the host or on a GPU: an op, tokens, and the yardsticks."""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mori import _core, cpp, device, shmem
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineKernelType, EpDispatchCombineOp
from mori.tensor_utils import dtype_size, from_host_ptr, gpu_tensor_view

from .ep import EPCase
from .ep_rows import BITS, Array, Layer, Sizes
from .memory import Region, memcpy
from .process import Member
from .raw import driver
from .raw.nccl import AllToAll, why_no_cuda

WAIT_S = 60.0
_SCALED = 128  # elements that share a scale
_CHECKED = 512  # rows and sums of a sample; the first sample is checked whole
_INPUT_BYTES = 256 << 20  # of combine's inputs that take turns


class Setup(NamedTuple):
    """The setup of a group of ranks: at most `tokens` tokens of a rank, of a pool of sizes.tokens.

    `dtype` is the widest element type, `package` has arrays of it. On GPUs, `flush` bytes are written
    before each round, and the ranks act as if on `hosts` hosts.
    """

    sizes: Sizes
    tokens: int
    dtype: str
    package: str
    gpus: tuple[int, ...] = ()
    flush: int = 0
    hosts: int = 1


class Times(NamedTuple):
    """The begin and end of a round, in seconds of a clock that all processes of the host share."""

    begin: float
    end: float


class _HostMemory(NamedTuple):
    """Memory of the host, like a device.DeviceMemory."""

    ptr: int
    nbytes: int
    owner: object

    def close(self) -> None:
        pass


class Rank(Member):
    """The calls of all ranks run at the same time."""

    def __init__(self, me: int, size: int, heap: int, setup: Setup) -> None:
        self._gpu = setup.gpus[me] if setup.gpus else None
        super().__init__(me, size, heap, self._gpu)
        self._setup, self._sizes, self._hosts = setup, setup.sizes, setup.hosts
        self._per_host = size // setup.hosts
        if setup.hosts > 1:
            os.environ["MORI_NODE_ID"] = f"host {me // self._per_host}"
        self._layer_of = functools.cache(lambda dtype, skewed: Layer(setup.sizes, dtype, setup.package, skewed))
        self._pool_of = functools.cache(self._make_pool)
        self._held: list[device.DeviceMemory | _HostMemory] = []
        self._nccl: AllToAll | None = None
        self._torch_stream: Any = None

    def join(self, unique_id: bytes) -> None:
        super().join(unique_id)
        s, size = self._sizes, dtype_size(self._setup.dtype)
        self._scales, per_rank = 0 if self._gpu is None else s.hidden // _SCALED, s.experts // s.ranks
        config = EpDispatchCombineConfig(
            self._setup.dtype, self.me, self.size, s.hidden, self._scales, 4, size, self._setup.tokens, per_rank, s.topk
        )
        if self._hosts > 1:
            kernel = EpDispatchCombineKernelType.InterNodeV1
            config = replace(config, kernel_type=kernel, gpu_per_node=self._per_host)
        self._op = EpDispatchCombineOp(config)
        if self._gpu is None:
            return
        self._flush = device.DeviceMemory(self._setup.flush, self._gpu)
        if why_no_cuda():
            self._stream = device.Stream(self._gpu)
        else:
            import torch

            torch.cuda.set_device(self._gpu)
            self._torch_stream = torch.cuda.Stream(self._gpu)
            self._stream = device.Stream.borrow(self._torch_stream, self._gpu)
        self._op.stream = self._stream
        self._clock = driver.Copies(self._gpu, on=self._stream)

    def leave(self) -> None:
        if self._nccl is not None:
            self._nccl.close()
        self._op.close()
        super().leave()

    def why_no_graphs(self) -> str:
        return why_no_cuda()

    def open_nccl(self, store: str) -> str:
        """Join the ranks of NCCL through a file. Return why NCCL cannot be used, or nothing."""
        if why := why_no_cuda():
            return why
        assert self._gpu is not None
        if self._hosts > 1:  # NCCL would detect that it is one host
            os.environ.update(NCCL_SHM_DISABLE="1", NCCL_P2P_DISABLE="1")
        try:
            self._nccl = AllToAll(store, self.me, self.size, self._gpu)
        except Exception as err:  # torch raises many kinds; without NCCL the case runs all the same
            return f"{type(err).__name__}: {err}".splitlines()[0]
        return ""

    # The data of a case.

    def prepare(self, case: EPCase) -> tuple[int, int]:
        """Make the inputs of a case. Return the rows sent, and the bytes that cross the wire to or from this rank."""
        while self._held:
            self._held.pop().close()
        self._case, self._sampled = case, False
        self._layer: Layer = self._layer_of(case.dtype, case.skewed)
        self._pool: Any = self._pool_of(case.dtype)
        self._row = self._sizes.hidden * dtype_size(case.dtype)
        n, topk = case.tokens, self._sizes.topk
        self._places = self._sizes.tokens // n  # batches of different tokens
        self._indices = self._upload(self._layer.indices(self.me, n), "int32")
        self._weights = self._upload(np.full((n, topk), 1 / topk, np.float32), "float32")
        scale = np.arange(n, dtype=np.float32)[:, None] + np.arange(self._scales, dtype=np.float32)
        scaled = case.dtype.startswith("float8") and self._scales
        self._scale = self._upload(scale, "float32") if scaled else None
        # Tokens that each rank sends to each rank.
        self._goes: list[list[int]] = [self._layer.goes(rank, n).sum(0).tolist() for rank in range(self.size)]
        self._launch: dict[str, Any] = self._launch_of(case.blocks, case.warps)
        self._calls = self._calls_of(case)
        self.relaunch(case.blocks, case.warps)
        sent, came = self._rows(sent=True), self._rows(sent=False)
        away = [sum(rows) - rows[self.me] for rows in (sent, came)]
        return sum(sent), max(away) * self._row_on_wire * self._turns

    def _memory(self, nbytes: int) -> device.DeviceMemory | _HostMemory:
        if self._gpu is not None:
            return device.DeviceMemory(max(1, nbytes), self._gpu)
        region = Region(max(1, nbytes))
        return _HostMemory(region.address, region.size, region)

    def _make_pool(self, dtype: str) -> device.DeviceMemory | _HostMemory:
        """Return all tokens of this rank."""
        tokens = self._layer_of(dtype, False).tokens(self.me)
        memory = self._memory(tokens.nbytes)
        device.copy(memory.ptr, tokens.ctypes.data, tokens.nbytes)
        return memory

    def _hold(self, nbytes: int) -> device.DeviceMemory | _HostMemory:
        """Return memory that stays until the next case."""
        self._held.append(self._memory(nbytes))
        return self._held[-1]

    def _upload(self, array: Array, dtype: str) -> Any:
        array = np.ascontiguousarray(array)
        memory = self._hold(array.nbytes)
        device.copy(memory.ptr, array.ctypes.data, array.nbytes)
        return self._view(memory.ptr, array.shape, dtype)

    def _view(self, address: int, shape: tuple[int, ...], dtype: str) -> Any:
        if self._gpu is not None:
            return gpu_tensor_view(address, shape, dtype, self._gpu)
        return from_host_ptr(address, shape, dtype, "torch" if self._setup.package == "torch" else "numpy")

    def _view_rows(self, address: int, rows: int) -> Any:
        return self._view(address, (rows, self._sizes.hidden), self._case.dtype)

    def _place(self, i: int) -> int:
        """Return the first token of call i."""
        return i % self._places * self._case.tokens

    def _launch_of(self, blocks: int | None, warps: int | None) -> dict[str, Any]:
        return {"block_num": blocks or -1, "warp_per_block": warps or -1}

    def _wait(self) -> None:
        if self._gpu is not None:
            self._stream.wait(WAIT_S)

    def relaunch(self, blocks: int | None, warps: int | None) -> None:
        """Prepare the calls with another launch."""
        self._graph: Any = None
        self._launch = self._launch_of(blocks, warps)
        for call in self._calls:
            call()
        self._wait()
        self._op.check()
        if self._case.mode == "graph":
            import torch

            graph, on = torch.cuda.CUDAGraph(), self._torch_stream
            with torch.cuda.graph(graph, stream=on, capture_error_mode="relaxed"):
                for call in self._calls:
                    call()
            self._graph = graph

    def _calls_of(self, case: EPCase) -> list[Callable[[], Any]]:
        """Return the calls of a round."""
        op, weights, scale, indices = self._op, self._weights, self._scale, self._indices
        starts = [self._pool.ptr + self._place(i) * self._row for i in range(case.calls)]
        inputs = [self._view_rows(start, case.tokens) for start in starts]

        def dispatch(tokens: Any, **more: Any) -> Any:
            return op.dispatch(tokens, weights, scale, indices, **more, **self._launch)

        def combine(rows: Any, **more: Any) -> Any:
            return op.combine(rows, None, indices, **more, **self._launch)

        def pair(tokens: Any) -> None:
            combine(dispatch(tokens)[0])

        if case.kind == "dispatch":
            return [partial(dispatch, tokens) for tokens in inputs]
        # The rows of one dispatch are combined repeatedly. Between hosts that takes a routing
        # handle, because forwarders do not keep all state of a dispatch twice.
        alone = self._hosts == 1 and case.kind != "both"
        _core.call("BenchKeepRows", op._handle, alone)
        rows, *_, handle = dispatch(inputs[0], return_routing=True)
        if case.kind == "both":
            return [partial(pair, tokens) for tokens in inputs]
        count = sum(self._rows(sent=True))
        in_place = case.kind == "combine-in-place"
        copies = max(2, min(case.calls, _INPUT_BYTES // max(1, count * self._row)))
        made = [self._made(rows, count, in_place) for _ in range(1 if in_place else copies)]
        more = {"use_external_inp_buf": int(not in_place), "routing": None if alone else handle}
        return [partial(combine, made[i % len(made)], **more) for i in range(case.calls)]

    def _made(self, rows: Any, count: int, in_place: bool) -> Any:
        """Return a copy of the rows: the output of experts that change nothing."""
        if in_place:
            buffer = self._op.get_registered_combine_input_buffer
            target = buffer(rows.dtype, self._sizes.hidden)
        else:
            target = self._view_rows(self._hold(count * self._row).ptr, count)
        self._copy(_address(target), _address(rows), count * self._row)
        return target

    def _copy(self, dst: int, src: int, size: int) -> None:
        self._wait()
        device.copy(dst, src, size)

    # The measurements.

    def _rounds(self, work: Callable[[], object]) -> list[Times]:
        """Return the begin and the end of each of the case's rounds, which work queues.

        All ranks begin a round together, on GPUs with flushed caches and at the time 0.
        """
        times = []
        for _ in range(self._case.rounds):
            if self._gpu is None:
                shmem.shmem_barrier_all()
                begin = time.perf_counter()
                work()
                times.append(Times(begin, time.perf_counter()))
            else:
                _core.call("StreamSet", self._stream._handle(), self._flush.ptr, 0, self._flush.nbytes)
                shmem.shmem_barrier_on_stream(self._stream)
                times.append(Times(0.0, self._clock.timed(work)))
        return times

    def sample(self) -> list[Times]:
        """Run the case's rounds."""
        spent: list[float] = []

        def eager() -> None:
            for call in self._calls:
                begin = time.perf_counter()
                call()
                spent.append(time.perf_counter() - begin)

        def graph() -> None:
            import torch

            with torch.cuda.stream(self._torch_stream):
                self._graph.replay()

        times = self._rounds(eager if self._graph is None else graph)
        self._op.check()
        self._host_us = statistics.median(spent) * 1e6 if spent else 0.0
        return times

    def host_us(self) -> float:
        """Return how long one call blocked its caller in the last sample; 0 for graphs."""
        return self._host_us

    def _rows(self, sent: bool) -> list[int]:
        """Count the rows that this rank sends to each rank in a call, or receives from each."""
        if sent != self._case.kind.startswith("combine"):
            return self._goes[self.me]
        return [goes[self.me] for goes in self._goes]

    @property
    def _turns(self) -> int:
        return 2 if self._case.kind == "both" else 1

    @property
    def _row_on_wire(self) -> int:
        """Return the bytes of a row with its scales."""
        return self._row + (4 * self._scales if self._scale is not None else 0)

    def copies(self) -> list[Times]:
        """Copy as many bytes to each rank: on the host all by memcpy, on GPUs by the driver to others.

        Each destination has a stream of its own.
        """
        received = cpp.get_dispatch_output_ptrs(self._op)[0]
        rows = [(d, n) for d, n in enumerate(self._rows(sent=True)) if n and (d != self.me or self._gpu is None)]
        moves = [(shmem.shmem_ptr_p2p(received, self.me, d), n * self._row_on_wire) for d, n in rows]
        if self._gpu is None:
            return self._rounds(lambda: [memcpy(to, self._pool.ptr, size) for to, size in moves])
        streams = [device.Stream(self._gpu) for _ in moves[1:]]

        def work() -> None:
            started = self._stream.record_event()
            for stream in streams:
                stream.wait_event(started)
            for i in range(self._case.calls * self._turns):
                for (to, size), stream in zip(moves, [self._stream, *streams], strict=False):
                    first = min(self._place(i) * self._row, self._pool.nbytes - size)
                    device.copy(to, self._pool.ptr + first, size, stream)
            for stream in streams:
                self._stream.wait_event(stream.record_event())

        times = self._rounds(work)
        for stream in streams:
            stream.close()
        return times

    def nccl(self) -> list[Times]:
        """Let NCCL move the rows, including those that stay on this rank."""
        assert self._nccl is not None
        sent, came = self._rows(sent=True), self._rows(sent=False)
        calls, stream = self._case.calls, self._torch_stream
        return self._rounds(self._nccl.work(self._pool, sent, came, self._row, calls, stream))

    # The bytes.

    def wipe(self) -> None:
        """Zero the results on a GPU."""
        n, combined = self._case.tokens, cpp.get_combine_output_ptrs(self._op)[0]
        received = cpp.get_dispatch_output_ptrs(self._op)[0]
        for at, rows in ((received, self.size * n), (combined, n)):
            _core.call("StreamSet", self._stream._handle(), at, 0, rows * self._row)
        self._wait()

    def wrong(self) -> int:
        """Count the wrong rows or sums of the last call: on GPUs all in the first sample, then some."""
        whole, self._sampled = self._gpu is None or not self._sampled, True
        count = self._wrong_rows if self._case.kind == "dispatch" else self._wrong_sums
        return count(whole)

    def _wrong_rows(self, whole: bool) -> int:
        rows, _, scales, *_ = cpp.get_dispatch_output_ptrs(self._op)
        positions = self._op.get_dispatch_src_token_pos()
        places = self._download(_address(positions), positions.shape[0] * 4, np.int32).astype(np.int64)
        rank, token = np.divmod(places, self._op.max_num_tokens_to_send())
        wrong = self._layer.lost_rows(self.me, self._case.tokens, rank, token)
        first, count = 0, len(places)
        if not whole and count > _CHECKED:
            first, count = int(np.random.default_rng().integers(0, count - _CHECKED)), _CHECKED
        rank, token = rank[first : first + count], token[first : first + count]
        last = self._place(self._case.calls - 1)
        bits = self._download_rows(rows + first * self._row, count)
        wrong += self._layer.different_rows(bits, rank, token + last)
        if self._scale is not None:
            size = self._scales * 4
            came = self._download(scales + first * size, count * size, np.float32)
            wanted = token[:, None] + np.arange(self._scales)
            wrong += int((came.reshape(wanted.shape) != wanted).any(1).sum())
        return wrong

    def _wrong_sums(self, whole: bool) -> int:
        n, both = self._case.tokens, self._case.kind == "both"
        last = self._place(self._case.calls - 1 if both else 0)
        count = n if whole else min(n, _CHECKED)
        bits = self._download_rows(cpp.get_combine_output_ptrs(self._op)[0], count)
        return self._layer.wrong_sums(self.me, n, bits, last)

    def _download_rows(self, at: int, count: int) -> Array:
        flat = self._download(at, count * self._row, np.uint8)
        return flat.view(BITS[dtype_size(self._case.dtype)]).reshape(count, self._sizes.hidden)

    def _download(self, at: int, size: int, dtype: Any) -> Array:
        raw = np.empty(size, np.uint8)
        self._copy(raw.ctypes.data, at, size)
        return raw.view(dtype)


def _address(array: Any) -> int:
    """Return the address of a view of GPU memory, or of a numpy or torch array on the host."""
    if hasattr(array, "ptr"):
        return int(array.ptr)
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)
