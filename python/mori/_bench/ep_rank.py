# SPDX-License-Identifier: MIT
"""A rank of `mori bench ep`: an op, tokens with known bytes, and plain copies of as many bytes."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from .ep_rows import Array, Elements, Layer, Sizes
from .memory import memcpy
from .process import Member


class Times(NamedTuple):
    """The begin and end of a phase, in seconds of a clock that all processes of the host share."""

    begin: float
    end: float


class Turn(NamedTuple):
    """One dispatch and the combine after it."""

    dispatch: Times
    combine: Times


class EPRank(Member):
    """The calls of all ranks run at the same time."""

    def __init__(self, me: int, size: int, heap: int, sizes: Sizes, dtype: str, package: str) -> None:
        super().__init__(me, size, heap)
        self._elements = Elements(dtype, package)
        self._layer = Layer(sizes, self._elements)
        self._sizes = sizes
        self._wrong = 0

    def join(self, unique_id: bytes) -> None:
        from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp

        super().join(unique_id)
        s, kept = self._sizes, self._elements
        config = EpDispatchCombineConfig(
            kept.dtype, self.me, self.size, s.hidden, 0, 0, kept.size, s.tokens, s.experts // s.ranks, s.topk
        )
        self._op = EpDispatchCombineOp(config)
        self._input = kept.wrap(self._layer.tokens(self.me))
        self._weights = kept.plain(np.full((s.tokens, s.topk), 1 / s.topk, np.float32))

    def rows(self, n: int) -> int:
        """Count the rows that n tokens of this rank make."""
        return int(self._layer.goes(self.me, n).sum())

    def turns(self, n: int, rounds: int, in_place: bool) -> list[Turn]:
        """Dispatch n tokens and combine the received rows unchanged. The last round is verified."""
        indices = self._elements.plain(self._layer.indices(self.me, n))
        return [self._turn(indices, n, in_place, i + 1 == rounds) for i in range(rounds)]

    def _turn(self, indices: Any, n: int, in_place: bool, verify: bool) -> Turn:
        from mori import shmem

        op, kept = self._op, self._elements
        given = self._input[:n], self._weights[:n]
        shmem.shmem_barrier_all()
        begin = time.perf_counter()
        rows, _, _, _, total = op.dispatch(*given, None, indices)
        dispatched = Times(begin, time.perf_counter())
        count = int(total[0])
        if verify:
            self._wrong = self._wrong_rows(n, kept.bits(rows)[:count])
        if in_place:
            buffer = op.get_registered_combine_input_buffer(rows.dtype, self._sizes.hidden)
            kept.bits(buffer)[:count] = kept.bits(rows)[:count]
            rows = buffer
        shmem.shmem_barrier_all()
        begin = time.perf_counter()
        out, _ = op.combine(rows, None, indices, use_external_inp_buf=0 if in_place else 1)
        combined = Times(begin, time.perf_counter())
        if verify:
            self._wrong += self._layer.wrong_sums(self.me, kept.bits(out)[:n])
        return Turn(dispatched, combined)

    def _wrong_rows(self, n: int, rows: Array) -> int:
        places = np.asarray(self._op.get_dispatch_src_token_pos(), np.int64)
        sent_at_most = self._op.max_num_tokens_to_send()
        return self._layer.wrong_rows(self.me, n, rows, places // sent_at_most, places % sent_at_most)

    def wrong(self) -> int:
        """Count the wrong rows and sums of the last verified round."""
        return self._wrong

    def copies(self, n: int, rounds: int) -> list[Times]:
        """Copy by memcpy as many bytes as the dispatch of n tokens moves, to the same memory."""
        from mori import cpp, shmem

        row, received = self._sizes.hidden * self._elements.size, cpp.get_dispatch_output_ptrs(self._op)[0]
        goes = [self._layer.goes(rank, n).sum(0) for rank in range(self.size)]
        blocks = []
        for to in range(self.size):
            base = sum(int(goes[source][to]) for source in range(self.me)) * row
            there = shmem.shmem_ptr_p2p(received, self.me, to)
            blocks.append((there + base, int(goes[self.me][to]) * row))
        source = _address(self._input)
        times = []
        for _ in range(rounds):
            shmem.shmem_barrier_all()
            begin = time.perf_counter()
            for at, size in blocks:
                memcpy(at, source, size)
            times.append(Times(begin, time.perf_counter()))
        shmem.shmem_barrier_all()
        return times

    def leave(self) -> None:
        self._op.close()
        super().leave()


def _address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)
