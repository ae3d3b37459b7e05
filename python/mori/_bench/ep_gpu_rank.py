# SPDX-License-Identifier: MIT
"""A rank of `mori bench ep --device gpu`: an op on its GPU, tokens with known bytes, and the
yardsticks.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mori import _core, device
from mori.tensor_utils import dtype_size, gpu_tensor_view

from .ep import GPUCase
from .ep_rows import Array, Elements, Layer, Sizes
from .process import Member
from .raw.nccl import AllToAll, why_no_cuda

WAIT_S = 60.0
_SCALED = 128  # elements that share a scale
_CHECKED = 512  # rows and sums of a sample; the first sample is checked whole
_INPUT_BYTES = 256 << 20  # of combine's inputs that take turns


class GPUEPRank(Member):
    """The calls of all ranks run at the same time."""

    def __init__(
        self,
        me: int,
        size: int,
        heap: int,
        gpus: list[int],
        sizes: Sizes,
        tokens: int,
        package: str,
        flush: int,
        hosts: int = 1,
    ) -> None:
        super().__init__(me, size, heap, gpus[me])
        self._per_host, self._hosts = size // hosts, hosts
        if hosts > 1:
            os.environ["MORI_NODE_ID"] = f"host {me // self._per_host}"
        self._gpu, self._sizes, self._tokens, self._package = gpus[me], sizes, tokens, package
        self._flush_bytes = flush
        self._layers: dict[tuple[str, bool], Layer] = {}
        self._pools: dict[str, device.DeviceMemory] = {}
        self._routes: dict[tuple[int, int, bool], Array] = {}
        self._held: list[device.DeviceMemory] = []
        self._nccl: AllToAll | None = None
        self._torch_stream: Any = None

    def join(self, unique_id: bytes) -> None:
        from mori.ops import EpDispatchCombineConfig, EpDispatchCombineKernelType, EpDispatchCombineOp

        super().join(unique_id)
        s = self._sizes
        self._scales = s.hidden // _SCALED
        per_rank = s.experts // s.ranks
        config = EpDispatchCombineConfig(
            "bfloat16", self.me, self.size, s.hidden, self._scales, 4, 2, self._tokens, per_rank, s.topk
        )
        if self._hosts > 1:
            kernel = EpDispatchCombineKernelType.InterNodeV1
            config = replace(config, kernel_type=kernel, gpu_per_node=self._per_host)
        self._op = EpDispatchCombineOp(config)
        self._flush = device.DeviceMemory(self._flush_bytes, self._gpu)
        if not why_no_cuda():
            import torch

            torch.cuda.set_device(self._gpu)
            self._torch_stream = torch.cuda.Stream(self._gpu)
            self._stream = device.Stream.borrow(self._torch_stream, self._gpu)
        else:
            self._stream = device.Stream(self._gpu)
        self._op.stream = self._stream

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
        if self._hosts > 1:  # which NCCL would find to be the same host
            os.environ.update(NCCL_SHM_DISABLE="1", NCCL_P2P_DISABLE="1")
        try:
            self._nccl = AllToAll(store, self.me, self.size, self._gpu)
        except Exception as err:  # torch raises many kinds; without NCCL the case runs all the same
            return f"{type(err).__name__}: {err}".splitlines()[0]
        return ""

    # The data of a case.

    def prepare(self, case: GPUCase) -> int:
        """Make the inputs of a case. Return the bytes that cross the wire to or from this rank."""
        for memory in self._held:
            memory.close()
        self._held.clear()
        self._case, self._sampled, self._host_us, self._graph = case, False, 0.0, None
        self._layer = self._layer_of(case.dtype, case.skewed)
        self._pool = self._pool_of(case.dtype)
        self._row = self._sizes.hidden * dtype_size(case.dtype)
        n, topk = case.tokens, self._sizes.topk
        self._places = self._layer.sizes.tokens // n  # batches of different tokens
        self._indices = self._upload(self._routing(self.me), "int32")
        self._weights = self._upload(np.full((n, topk), 1 / topk, np.float32), "float32")
        scale = np.arange(n, dtype=np.float32)[:, None] + np.arange(self._scales, dtype=np.float32)
        self._scale = self._upload(scale, "float32") if case.dtype.startswith("float8") and self._scales else None
        self._goes = [self._goes_of(rank) for rank in range(self.size)]
        self._calls = list(self._calls_of(case))
        for call in self._calls:
            call()
        self._stream.wait(WAIT_S)
        self._op.check()
        if case.mode == "graph":
            self._capture()
        return self._wire()

    def _layer_of(self, dtype: str, skewed: bool) -> Layer:
        key = (dtype, skewed)
        if key not in self._layers:
            self._layers[key] = Layer(self._sizes, Elements(dtype, self._package), skewed)
        return self._layers[key]

    def _pool_of(self, dtype: str) -> device.DeviceMemory:
        """Return all tokens of this rank."""
        if dtype not in self._pools:
            tokens = self._layer_of(dtype, False).tokens(self.me)
            memory = self._pools[dtype] = device.DeviceMemory(tokens.nbytes, self._gpu)
            memory.write(tokens.reshape(-1).view(np.uint8))
        return self._pools[dtype]

    def _routing(self, rank: int) -> Array:
        key = (rank, self._case.tokens, self._case.skewed)
        if key not in self._routes:
            self._routes[key] = self._layer.indices(rank, self._case.tokens)
        return self._routes[key]

    def _goes_of(self, rank: int) -> Array:
        """Count a rank's tokens for each rank."""
        to = self._routing(rank) // (self._sizes.experts // self.size)
        return np.array([(to == d).any(1).sum() for d in range(self.size)])

    def _upload(self, array: Array, dtype: str) -> Any:
        memory = device.DeviceMemory(max(1, array.nbytes), self._gpu)
        self._held.append(memory)
        memory.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return gpu_tensor_view(memory.ptr, array.shape, dtype, self._gpu)

    def _place(self, i: int) -> int:
        """Return the first token of call i."""
        return i % self._places * self._case.tokens

    def _input(self, i: int) -> Any:
        shape = self._case.tokens, self._sizes.hidden
        return gpu_tensor_view(self._pool.ptr + self._place(i) * self._row, shape, self._case.dtype, self._gpu)

    def _dispatch(self, i: int, **more: Any) -> Any:
        more.update(self._launch)
        return self._op.dispatch(self._inputs[i], self._weights, self._scale, self._indices, **more)

    @property
    def _launch(self) -> dict[str, Any]:
        return {"block_num": self._case.blocks or -1, "warp_per_block": self._case.warps or -1}

    def relaunch(self, blocks: int, warps: int) -> None:
        """Prepare the same calls with another launch."""
        self._graph = None
        self._case = replace(self._case, blocks=blocks, warps=warps)
        for call in self._calls:
            call()
        self._stream.wait(WAIT_S)
        if self._case.mode == "graph":
            self._capture()

    def _calls_of(self, case: GPUCase) -> Iterator[Callable[[], Any]]:
        """Yield the calls of a round."""
        self._inputs = [self._input(i) for i in range(case.calls)]
        if case.kind == "dispatch":
            yield from (lambda i=i: self._dispatch(i) for i in range(case.calls))
            return
        # The rows of one dispatch are combined repeatedly. Between hosts that takes a routing
        # handle, because
        # forwarders do not keep all state of a dispatch twice.
        alone = self._hosts == 1 and case.kind != "both"
        _core.call("BenchKeepRows", self._op._handle, alone)
        rows, *_, handle = self._dispatch(0, return_routing=True)
        route = None if alone else handle
        if case.kind == "both":

            def pair(i: int) -> None:
                self._op.combine(self._dispatch(i)[0], None, self._indices, **self._launch)

            yield from (lambda i=i: pair(i) for i in range(case.calls))
            return
        count = int(sum(goes[self.me] for goes in self._goes))
        in_place = case.kind == "combine-in-place"
        copies = 1 if in_place else max(2, min(case.calls, _INPUT_BYTES // max(1, count * self._row)))
        made = [self._made(rows, count, in_place) for _ in range(copies)]
        for i in range(case.calls):
            yield lambda i=i: self._op.combine(  # type: ignore[misc]
                made[i % copies],
                None,
                self._indices,
                use_external_inp_buf=int(not in_place),
                routing=route,
                **self._launch,
            )

    def _made(self, rows: Any, count: int, in_place: bool) -> Any:
        """Return a copy of the rows: the output of experts that change nothing."""
        if in_place:
            target = self._op.get_registered_combine_input_buffer(self._case.dtype, self._sizes.hidden)
        else:
            memory = device.DeviceMemory(max(1, count * self._row), self._gpu)
            self._held.append(memory)
            target = gpu_tensor_view(memory.ptr, (count, self._sizes.hidden), self._case.dtype, self._gpu)
        if count:
            device.copy(target.ptr, rows.ptr, count * self._row, self._stream)
        self._stream.wait(WAIT_S)
        return target

    def _capture(self) -> None:
        import torch

        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=self._torch_stream, capture_error_mode="relaxed"):
            for call in self._calls:
                call()

    # The measurements.

    def _round(self, work: Callable[[], None], calls: int, stream: device.Stream | None = None) -> float:
        """Return the microseconds of one call that work queues. All GPUs begin together, with
        flushed caches.
        """
        from mori import shmem

        on = stream or self._stream
        begin, end = device.Event(self._gpu), device.Event(self._gpu)
        _core.call("StreamSet", on._handle(), self._flush.ptr, 0, self._flush.nbytes)
        shmem.shmem_barrier_on_stream(on)
        begin.record(on)
        work()
        end.record(on)
        end.wait(WAIT_S)
        return float(end.elapsed_ms(begin)) * 1e3 / calls

    def sample(self) -> list[float]:
        """Run the case's rounds. Return the microseconds of a call in each."""
        spent: list[float] = []

        def eager() -> None:
            for call in self._calls:
                begin = time.perf_counter()
                call()
                spent.append(time.perf_counter() - begin)

        def graph() -> None:
            import torch

            with torch.cuda.stream(self._torch_stream):
                self._graph.replay()  # type: ignore[attr-defined]

        work = eager if self._graph is None else graph
        times = [self._round(work, len(self._calls)) for _ in range(self._case.rounds)]
        self._op.check()
        self._host_us = statistics.median(spent) * 1e6 if spent else 0.0
        return times

    def host_us(self) -> float:
        """Return how long one call kept its caller in the last sample; 0 for graphs."""
        return self._host_us

    def _rows_of(self, sent: bool) -> list[int]:
        """Count the rows that this rank sends to each rank in a call, or receives from each."""
        if sent != self._case.kind.startswith("combine"):
            return [int(n) for n in self._goes[self.me]]
        return [int(goes[self.me]) for goes in self._goes]

    def _wire(self) -> int:
        """Return the bytes that leave this rank or reach it, whichever are more."""
        rows = max(sum(n for d, n in enumerate(some) if d != self.me) for some in map(self._rows_of, (True, False)))
        return rows * self._row_on_wire * self._turns

    @property
    def _turns(self) -> int:
        return 2 if self._case.kind == "both" else 1

    def copies(self) -> list[float]:
        """Let the driver copy as many bytes to each rank, on a stream for each."""
        moves = self._moves()
        streams = [device.Stream(self._gpu) for _ in moves[1:]]

        def work() -> None:
            started = self._stream.record_event()
            for stream in streams:
                stream.wait_event(started)
            for i in range(self._case.calls * self._turns):
                for (to, size), stream in zip(moves, [self._stream, *streams][: len(moves)], strict=True):
                    first = min(self._place(i) * self._row, self._pool.nbytes - size)
                    device.copy(to, self._pool.ptr + first, size, stream)
            for stream in streams:
                self._stream.wait_event(stream.record_event())

        times = [self._round(work, self._case.calls) for _ in range(self._case.rounds)]
        for stream in streams:
            stream.close()
        return times

    def _moves(self) -> list[tuple[int, int]]:
        """Return address and bytes of the copies: to the memory of each rank that dispatch writes
        to.
        """
        from mori import cpp, shmem

        received = cpp.get_dispatch_output_ptrs(self._op)[0]
        sent = [(d, n * self._row_on_wire) for d, n in enumerate(self._rows_of(sent=True)) if d != self.me and n]
        return [(shmem.shmem_ptr_p2p(received, self.me, d), size) for d, size in sent]

    @property
    def _row_on_wire(self) -> int:
        """Return the bytes of a row with its scales."""
        return self._row + (4 * self._scales if self._scale is not None else 0)

    def nccl(self) -> list[float]:
        """Let NCCL move the rows, including those that stay on this rank."""
        assert self._nccl is not None
        sent, came = self._rows_of(sent=True), self._rows_of(sent=False)
        work = self._nccl.work(self._pool, sent, came, self._row, self._case.calls, self._torch_stream)
        return [self._round(work, self._case.calls) for _ in range(self._case.rounds)]

    # The bytes.

    def wipe(self) -> None:
        """Zero the results."""
        from mori import cpp

        n, combined = self._case.tokens, cpp.get_combine_output_ptrs(self._op)[0]
        received = cpp.get_dispatch_output_ptrs(self._op)[0]
        for at, rows in ((received, self.size * n), (combined, n)):
            _core.call("StreamSet", self._stream._handle(), at, 0, rows * self._row)
        self._stream.wait(WAIT_S)

    def wrong(self) -> int:
        """Count the wrong rows or sums of the last call: all of the first sample's, some of later
        ones.
        """
        whole, self._sampled = not self._sampled, True
        if self._case.kind == "dispatch":
            return self._wrong_rows(whole)
        return self._wrong_sums(whole)

    def _wrong_rows(self, whole: bool) -> int:
        from mori import cpp

        n, last = self._case.tokens, self._place(self._case.calls - 1)
        rows, _, scales, *_ = cpp.get_dispatch_output_ptrs(self._op)
        positions = self._op.get_dispatch_src_token_pos()
        places = self._download(positions.ptr, positions.shape[0] * 4, np.int32).astype(np.int64)
        at_most = self._op.max_num_tokens_to_send()
        rank, token = places // at_most, places % at_most
        wrong = self._layer.lost_rows(self.me, n, rank, token)
        first, count = self._some(len(places), whole)
        bits = self._download_rows(rows, first, count)
        part = slice(first, first + count)
        wrong += self._layer.different_rows(bits, rank[part], token[part] + last)
        if self._scale is not None:
            came = self._download(scales + first * self._scales * 4, count * self._scales * 4, np.float32)
            wanted = token[part][:, None] + np.arange(self._scales)
            wrong += int((came.reshape(count, self._scales) != wanted).any(1).sum())
        return wrong

    def _wrong_sums(self, whole: bool) -> int:
        from mori import cpp

        n, both = self._case.tokens, self._case.kind == "both"
        last = self._place(self._case.calls - 1) if both else self._place(0)
        count = n if whole else min(n, _CHECKED)
        bits = self._download_rows(cpp.get_combine_output_ptrs(self._op)[0], 0, count)
        to = self._routing(self.me)[:count] // (self._sizes.experts // self.size)
        times = sum((to == d).any(1).astype(np.int64) for d in range(self.size))
        return self._layer.wrong_multiples(self.me, bits, np.asarray(times), last)

    def _some(self, n: int, whole: bool) -> tuple[int, int]:
        """Return the first row to check and how many."""
        if whole or n <= _CHECKED:
            return 0, n
        return int(np.random.default_rng().integers(0, n - _CHECKED)), _CHECKED

    def _download_rows(self, at: int, first: int, count: int) -> Array:
        flat = self._download(at + first * self._row, count * self._row, np.uint8)
        bits = {1: np.uint8, 2: np.uint16}[dtype_size(self._case.dtype)]
        return flat.view(bits).reshape(count, self._sizes.hidden)

    def _download(self, at: int, size: int, dtype: Any) -> Array:
        raw = np.empty(size, np.uint8)
        if size:
            device.copy(raw.ctypes.data, at, size, self._stream)
            self._stream.wait(WAIT_S)
        return raw.view(dtype)
