# SPDX-License-Identifier: MIT
"""A rank of `mori bench ep`: an op, tokens with known bytes, and plain copies of as many bytes."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from mori import cpp, shmem
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp

from .ep_rows import Elements, Layer, Sizes
from .memory import memcpy
from .process import Member


class Times(NamedTuple):
    """The begin and end of a phase, in seconds of a clock that all processes of the host share."""

    begin: float
    end: float


class EPRank(Member):
    """The calls of all ranks run at the same time."""

    def __init__(
        self, me: int, size: int, heap: int, sizes: Sizes, dtype: str, package: str
    ) -> None:
        super().__init__(me, size, heap)
        self._elements = Elements(dtype, package)
        self._layer = Layer(sizes, self._elements)
        self._sizes = sizes
        self._wrong = 0

    def join(self, unique_id: bytes) -> None:
        super().join(unique_id)
        s, kept = self._sizes, self._elements
        per_rank = s.experts // s.ranks
        config = EpDispatchCombineConfig(
            kept.dtype, self.me, self.size, s.hidden, 0, 0, kept.size, s.tokens, per_rank, s.topk
        )
        self._op = EpDispatchCombineOp(config)
        self._bits = self._layer.tokens(self.me)
        self._input = kept.wrap(self._bits)
        self._weights = kept.plain(np.full((s.tokens, s.topk), 1 / s.topk, np.float32))

    def rows(self, n: int) -> int:
        """Count the rows that n tokens of this rank make."""
        return int(self._layer.goes(self.me, n).sum())

    def turns(self, n: int, rounds: int, in_place: bool) -> dict[str, list[Times]]:
        """Dispatch n tokens and combine the received rows unchanged. The last round is verified."""
        op, kept = self._op, self._elements
        indices = kept.plain(self._layer.indices(self.me, n))
        given = self._input[:n], self._weights[:n], None, indices
        times: dict[str, list[Times]] = {"dispatch": [], "combine": []}
        for left in range(rounds, 0, -1):
            shmem.shmem_barrier_all()
            begin = time.perf_counter()
            rows, _, _, _, total = op.dispatch(*given)
            times["dispatch"].append(Times(begin, time.perf_counter()))
            came = kept.bits(rows)[: int(total[0])]
            if left == 1:
                places = np.asarray(op.get_dispatch_src_token_pos(), np.int64)
                rank, token = np.divmod(places, op.max_num_tokens_to_send())
                self._wrong = self._layer.wrong_rows(self.me, n, came, rank, token)
            if in_place:
                rows = op.get_registered_combine_input_buffer(rows.dtype, self._sizes.hidden)
                kept.bits(rows)[: len(came)] = came
            shmem.shmem_barrier_all()
            begin = time.perf_counter()
            out, _ = op.combine(rows, None, indices, use_external_inp_buf=0 if in_place else 1)
            times["combine"].append(Times(begin, time.perf_counter()))
        self._wrong += self._layer.wrong_sums(self.me, kept.bits(out)[:n])
        return times

    def wrong(self) -> int:
        """Count the wrong rows and sums of the last verified round."""
        return self._wrong

    def copies(self, n: int, rounds: int) -> list[Times]:
        """Copy by memcpy as many bytes as the dispatch of n tokens moves, to the same memory."""
        row, received = self._bits[0].nbytes, cpp.get_dispatch_output_ptrs(self._op)[0]
        goes = np.array([self._layer.goes(rank, n).sum(0) for rank in range(self.size)])
        firsts = goes[: self.me].sum(0)
        blocks = []
        for to, (first, count) in enumerate(zip(firsts, goes[self.me], strict=True)):
            there = shmem.shmem_ptr_p2p(received, self.me, to)
            blocks.append((there + int(first) * row, int(count) * row))
        source, times = self._bits.ctypes.data, []
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
