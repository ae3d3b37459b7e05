# SPDX-License-Identifier: MIT
"""A mixture-of-experts layer in plain numpy: gate, experts, and the whole layer in one process.

Everything is made from seeds, so that each rank can compute the tokens and weights of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_TOKENS, _GATE, _EXPERT = range(3)


Expert = tuple[int, Array, Array]
"""A number, and two matrices with a ReLU between them: up [hidden, inner], down [inner, hidden]."""


@dataclass(frozen=True)
class Layer:
    """The sizes of a layer; `topk` is the number of experts that a token chooses."""

    hidden: int
    tokens: int
    experts_per_rank: int
    topk: int
    ranks: int
    seed: int = 1

    def __post_init__(self) -> None:
        if self.topk > self.experts:
            raise ValueError(f"a token cannot choose {self.topk} of {self.experts} experts")

    @property
    def experts(self) -> int:
        return self.ranks * self.experts_per_rank

    @property
    def inner(self) -> int:
        """Width of an expert's hidden layer: small, since the layer is about moving tokens."""
        return max(1, self.hidden // 16)

    def random(self, kind: int, *which: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, kind, *which))

    def tokens_of(self, rank: int) -> Array:
        """float32 [tokens, hidden]"""
        return self.random(_TOKENS, rank).standard_normal((self.tokens, self.hidden), np.float32)

    def gate(self, x: Array) -> tuple[Array, Array]:
        """Each token's experts, int32 [n, topk], and weights, float32, which add up to 1."""
        matrix = self.random(_GATE).standard_normal((self.hidden, self.experts), np.float32)
        scores = x @ matrix / np.sqrt(self.hidden, dtype=np.float32)
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, : self.topk].astype(np.int32)
        best = np.take_along_axis(scores, chosen, 1)
        weights = np.exp(best - best.max(1, keepdims=True))
        return np.ascontiguousarray(chosen), (weights / weights.sum(1, keepdims=True)).astype(np.float32)

    def experts_of(self, rank: int) -> Iterator[Expert]:
        """The experts of one rank, made one by one."""
        for number in range(rank * self.experts_per_rank, (rank + 1) * self.experts_per_rank):
            random = self.random(_EXPERT, number)
            up, down = (
                random.standard_normal(shape, np.float32) / np.sqrt(shape[0], dtype=np.float32)
                for shape in ((self.hidden, self.inner), (self.inner, self.hidden))
            )
            yield number, up, down

    def whole(self) -> Array:
        """The output for all ranks' tokens in one process, float32 [ranks, tokens, hidden]."""
        x = np.concatenate([self.tokens_of(rank) for rank in range(self.ranks)])
        chosen, weights = self.gate(x)
        out = np.zeros(x.shape, np.float32)
        for rank in range(self.ranks):
            out += apply(self.experts_of(rank), x, chosen, weights)
        return out.reshape(self.ranks, self.tokens, self.hidden)


def apply(experts: Iterable[Expert], x: Array, chosen: Array, weights: Array) -> Array:
    """The weighted sum of the experts' results for their tokens, float32 [n, hidden]."""
    out = np.zeros(x.shape, np.float32)
    for number, up, down in experts:
        rows, places = np.nonzero(chosen == number)
        if len(rows):
            out[rows] += weights[rows, places][:, None] * (np.maximum(x[rows] @ up, 0) @ down)
    return out
