# SPDX-License-Identifier: MIT
"""Tokens that every rank can compute, and the results that dispatch and combine must have.

A token is a slice of one text of small integers, at an offset of its own. Combine sums as many equal
rows as a token has ranks, so there is a text of each multiple, rounded once as combine does.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Odd, so that i * _STRIDE modulo a power of two visits every place once.
_STRIDE = 40503
_MIN_PLACES = 1 << 16
_CHUNK = 256  # rows compared at once


# Arrays of the bits of elements, by their bytes.
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def encode(numbers: Array, dtype: str, package: str) -> Array:
    """Return the bits of float32 numbers, rounded to an element type that numpy, ml_dtypes or torch has."""
    module = importlib.import_module(package)
    if package == "torch":
        rounded: Array = module.from_numpy(numbers).to(getattr(module, dtype)).view(module.uint8).numpy()
    else:
        rounded = numbers.astype(getattr(module, dtype)).view(np.uint8)
    return rounded.view(BITS[rounded.size // numbers.size])


@dataclass(frozen=True)
class Sizes:
    """A layer: most tokens of a rank, elements of a token, experts of all ranks and of a token."""

    tokens: int
    hidden: int
    experts: int
    topk: int
    ranks: int


class Layer:
    """Tokens and routing of all ranks. Skewed: an expert is chosen in proportion to 1 / number."""

    def __init__(self, sizes: Sizes, dtype: str, package: str, skewed: bool = False) -> None:
        self.sizes = sizes
        self._likely = 1 / np.arange(1, sizes.experts + 1, dtype=np.float32) if skewed else None
        self._places = max(_MIN_PLACES, 1 << (sizes.ranks * sizes.tokens - 1).bit_length())
        text = np.random.default_rng(20_26).integers(-8, 9, self._places + sizes.hidden).astype(np.float32)
        multiples = range(sizes.ranks + 1)
        # 0 is added so that no zero is negative: a sum that starts at 0 has none.
        encoded = [encode(text * np.float32(k) + np.float32(0), dtype, package) for k in multiples]
        windows = np.lib.stride_tricks.sliding_window_view
        self._texts = [windows(text, sizes.hidden) for text in encoded]
        # The routing of a rank's first n tokens, and which of them go to which rank.
        self.indices: Callable[[int, int], Array] = functools.cache(self._indices)
        self.goes: Callable[[int, int], Array] = functools.cache(self._goes)

    def _starts(self, rank: Array | int, token: Array) -> Array:
        place: Array = (rank * self.sizes.tokens + token) * _STRIDE % self._places
        return place

    def tokens(self, rank: int) -> Array:
        """Return the bits of a rank's tokens, [tokens, hidden]."""
        return np.ascontiguousarray(self._texts[1][self._starts(rank, np.arange(self.sizes.tokens))])

    def _indices(self, rank: int, n: int) -> Array:
        """Return the experts of a rank's first n tokens, int32 [n, topk], uniform unless skewed."""
        random: Array = np.random.default_rng((20_26, rank)).random((n, self.sizes.experts), np.float32)
        if self._likely is not None:
            # The smallest exponential variates are drawn by their rates.
            random = -np.log1p(-random) / self._likely
        chosen = np.argpartition(random, self.sizes.topk - 1, axis=1)[:, : self.sizes.topk]
        return np.ascontiguousarray(chosen, np.int32)

    def _goes(self, rank: int, n: int) -> Array:
        """Return which of a rank's first n tokens go to which rank, bool [n, ranks]."""
        to = np.zeros((n, self.sizes.ranks), np.bool_)
        np.put_along_axis(to, self.indices(rank, n) // (self.sizes.experts // self.sizes.ranks), True, 1)
        return to

    def lost_rows(self, me: int, n: int, rank: Array, token: Array) -> int:
        """Count the sources from which rank `me` did not get exactly the right tokens."""
        wanted = [np.flatnonzero(self.goes(source, n)[:, me]) for source in range(self.sizes.ranks)]
        came = [np.sort(token[rank == source]) for source in range(self.sizes.ranks)]
        return sum(not np.array_equal(w, c) for w, c in zip(wanted, came, strict=True))

    def different_rows(self, rows: Array, rank: Array, token: Array) -> int:
        """Count the rows that differ from the given tokens of the given ranks."""
        return self._different(rows, 1, self._starts(rank, token))

    def wrong_sums(self, me: int, n: int, rows: Array, first: int = 0) -> int:
        """Count the sums of the first of n tokens, from `first` on, that are not a token times its ranks."""
        times = self.goes(me, n)[: len(rows)].sum(1)
        starts = self._starts(me, np.arange(first, first + len(rows)))
        groups = ((k, np.flatnonzero(times == k)) for k in range(self.sizes.ranks + 1))
        return sum(self._different(rows[which], k, starts[which]) for k, which in groups if len(which))

    def _different(self, rows: Array, multiple: int, starts: Array) -> int:
        count = 0
        for at in range(0, len(rows), _CHUNK):
            expected = self._texts[multiple][starts[at : at + _CHUNK]]
            count += int((rows[at : at + _CHUNK] != expected).any(1).sum())
        return count
