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


class Elements:
    """Makes and reads rows of one element type; numpy lacks some, ml_dtypes or torch has them."""

    def __init__(self, name: str, package: str) -> None:
        self._package = importlib.import_module(package)
        self.dtype: Any = np.dtype(np.float32) if package == "numpy" else getattr(self._package, name)
        self._torch = package == "torch"
        self.size = int(self.dtype.itemsize if self._torch else np.dtype(self.dtype).itemsize)
        self._bits = np.dtype({1: np.uint8, 2: np.uint16, 4: np.uint32}[self.size])
        # torch has no unsigned types of that width.
        self._torch_bits = {1: "uint8", 2: "int16", 4: "int32"}[self.size]

    def encode(self, numbers: Array) -> Array:
        """Return the bits of float32 numbers, rounded to the type."""
        if self._torch:
            return self.bits(self._package.from_numpy(numbers).to(self.dtype))
        return numbers.astype(self.dtype).view(self._bits)

    def wrap(self, bits: Array) -> Any:
        """Return an array of the type over the same memory, as mori.ops takes it."""
        if self._torch:
            return self._package.from_numpy(bits.view(self._torch_bits)).view(self.dtype)
        return bits.view(self.dtype)

    def plain(self, array: Array) -> Any:
        """Return an array of a common type as numpy or torch, like the rows."""
        return self._package.from_numpy(array) if self._torch else array

    def bits(self, array: Any) -> Array:
        """Return the bits of an array of mori.ops, over the same memory."""
        if self._torch:
            array = array.view(getattr(self._package, self._torch_bits)).numpy()
        seen: Array = array.view(self._bits)
        return seen


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

    def __init__(self, sizes: Sizes, elements: Elements, skewed: bool = False) -> None:
        self.sizes, self.elements = sizes, elements
        self._likely = 1 / np.arange(1, sizes.experts + 1, dtype=np.float32) if skewed else None
        self._places = max(_MIN_PLACES, 1 << (sizes.ranks * sizes.tokens - 1).bit_length())
        text = np.random.default_rng(20_26).integers(-8, 9, self._places + sizes.hidden).astype(np.float32)
        multiples = range(sizes.ranks + 1)
        # 0 is added so that no zero is negative: a sum that starts at 0 has none.
        encoded = [elements.encode(text * np.float32(k) + np.float32(0)) for k in multiples]
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

    def wrong_rows(self, me: int, n: int, rows: Array, rank: Array, token: Array, first: int = 0) -> int:
        """Count the rows on rank `me` that differ from the tokens sent to it, from `first` on."""
        return self.lost_rows(me, n, rank, token) + self.different_rows(rows, rank, token + first)

    def lost_rows(self, me: int, n: int, rank: Array, token: Array) -> int:
        """Count the sources from which rank `me` did not get exactly the right tokens."""
        wanted = [np.flatnonzero(self.goes(source, n)[:, me]) for source in range(self.sizes.ranks)]
        came = [np.sort(token[rank == source]) for source in range(self.sizes.ranks)]
        return sum(not np.array_equal(w, c) for w, c in zip(wanted, came, strict=True))

    def different_rows(self, rows: Array, rank: Array, token: Array) -> int:
        """Count the rows that differ from the given tokens of the given ranks."""
        return self._different(rows, 1, self._starts(rank, token))

    def wrong_sums(self, me: int, rows: Array, first: int = 0) -> int:
        """Count the combined tokens, from `first` on, that differ from token times ranks."""
        return self.wrong_multiples(me, rows, self.goes(me, len(rows)).sum(1), first)

    def wrong_multiples(self, me: int, rows: Array, times: Array, first: int) -> int:
        """Count the rows that differ from `times` times their token; the first is token `first`."""
        starts = self._starts(me, np.arange(first, first + len(rows)))
        groups = ((k, np.flatnonzero(times == k)) for k in range(self.sizes.ranks + 1))
        return sum(self._different(rows[which], k, starts[which]) for k, which in groups if len(which))

    def _different(self, rows: Array, multiple: int, starts: Array) -> int:
        count = 0
        for at in range(0, len(rows), _CHUNK):
            expected = self._texts[multiple][starts[at : at + _CHUNK]]
            count += int((rows[at : at + _CHUNK] != expected).any(1).sum())
        return count
