# SPDX-License-Identifier: MIT
"""The shape of a paged KV cache and where each of its bytes lies. Pure arithmetic."""

from __future__ import annotations

import random
from dataclasses import dataclass

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}


@dataclass(frozen=True)
class Shape:
    """One region per layer, which holds all K blocks of a pool and then all its V blocks.

    A block has the keys (or the values) of `block_size` tokens. The pool has a few blocks more than the tokens need, as
    in a serving engine, so a block table is a choice of blocks and not only an order.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    block_size: int
    tokens: int

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim", "block_size", "tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPE_BYTES)}, got {self.dtype!r}")

    @property
    def block_bytes(self) -> int:
        return self.block_size * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def blocks(self) -> int:
        """Blocks that the tokens fill, of K or of V, in one layer."""
        return -(-self.tokens // self.block_size)

    @property
    def pool(self) -> int:
        """Blocks of K or of V in one layer's region, spare ones included."""
        return self.blocks + max(4, self.blocks // 16)

    @property
    def region_bytes(self) -> int:
        return 2 * self.pool * self.block_bytes

    @property
    def moved_blocks(self) -> int:
        return self.layers * 2 * self.blocks

    @property
    def moved_bytes(self) -> int:
        return self.moved_blocks * self.block_bytes

    @property
    def layer_bytes(self) -> int:
        return 2 * self.blocks * self.block_bytes

    @property
    def cache_bytes(self) -> int:
        return self.layers * self.region_bytes

    def with_tokens(self, tokens: int) -> Shape:
        return Shape(self.layers, self.kv_heads, self.head_dim, self.dtype, self.block_size, tokens)

    def offsets(self, table: list[int]) -> list[int]:
        """Where the blocks of a block table lie in any layer's region: first their keys, then their
        values.
        """
        values = self.pool * self.block_bytes
        return [block * self.block_bytes + half for half in (0, values) for block in table]

    def granules(self, layer: int, table: list[int]) -> list[tuple[int, int]]:
        """(offset, index) of every block of a layer, for `Pattern`: an index names a block whatever
        table is used.
        """
        first = layer * 2 * self.blocks
        return [(offset, first + i) for i, offset in enumerate(self.offsets(table))]

    def spare_offsets(self, table: list[int]) -> list[int]:
        """Where the blocks lie that no token uses."""
        used = set(table)
        return self.offsets([block for block in range(self.pool) if block not in used])


def block_table(shape: Shape, seed: int, role: str) -> list[int]:
    """The physical block of each logical one: shuffled, and different for each role."""
    return random.Random(f"{seed}/{role}").sample(range(shape.pool), shape.blocks)
