# SPDX-License-Identifier: MIT
"""An op small enough to say by heart what it does, and arguments for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from arrays import DTYPES, make
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineKernelType, EpDispatchCombineOp
from ranks import Rank

HIDDEN, TOPK, EXPERTS, TOKENS = 8, 2, 2, 4  # experts per rank; tokens at most


def new_op(rank: Rank, dtype: str = "float32", kernel: str = "IntraNode", **changes: Any) -> EpDispatchCombineOp:
    """An op of this world for rows of 8 elements, at most 4 tokens a rank, 2 experts a rank and 2 experts a token."""
    kernel_type = EpDispatchCombineKernelType[kernel]
    sizes = (HIDDEN, 0, 0, 4, TOKENS, EXPERTS, TOPK)
    config = EpDispatchCombineConfig(dtype, rank.me, rank.size, *sizes, kernel_type=kernel_type)
    return EpDispatchCombineOp(dataclasses.replace(config, **changes))


def rows(rank: Rank, n: int, kind: str = "numpy", dtype: str = "float32") -> Any:
    """Tokens whose elements say where they come from: 10 x rank + token."""
    column = 10 * rank.me + np.arange(n, dtype=np.float32)
    return make(kind, np.repeat(column[:, None], HIDDEN, 1).astype(DTYPES[dtype]), dtype)


def ids(*pairs: tuple[int, int], kind: str = "numpy") -> Any:
    return make(kind, np.array(pairs, np.int32).reshape(-1, TOPK))


def halves(n: int, kind: str = "numpy") -> Any:
    return make(kind, np.full((n, TOPK), 0.5, np.float32))


def everywhere(rank: Rank, n: int = 3, kind: str = "numpy") -> Any:
    """Every token chooses the first expert of rank 0 and the last one of the last rank."""
    return ids(*[(0, EXPERTS * rank.size - 1)] * n, kind=kind)
