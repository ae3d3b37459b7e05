# SPDX-License-Identifier: MIT
"""MoE dispatch and combine in plain numpy, slow and obvious: the reference for ``mori.ops``.

All ranks are here at once: a list with one entry per rank goes in and one comes out. Nothing is packed, sent,
waited for or vectorised. Elements are float32 or one of ml_dtypes' small floats. Sums are made in float32, in the order
of ranks, so that they can be compared bit for bit.

    config = Config(world_size=2, num_experts_per_rank=4, num_experts_per_token=2, max_num_inp_token_per_rank=8)
    rows = dispatch(config, tokens)                             # tokens[rank]: Tokens, rows[rank]: Rows
    outputs = [mlp(r.input) for r in rows]                      # what each rank's experts make of its rows
    out, out_weights = combine(config, tokens, rows, outputs)[rank]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
E4M3_MAX = 448.0
BLOCKS = 56  # the default of MORI_FP8_COMBINE_SCALE_DIM


@dataclass(frozen=True)
class Config:
    """The fields of EpDispatchCombineConfig that decide who receives what, by their names there."""

    world_size: int
    num_experts_per_rank: int
    num_experts_per_token: int
    max_num_inp_token_per_rank: int
    max_total_recv_tokens: int = 0

    @property
    def max_send(self) -> int:
        return self.world_size * self.max_num_inp_token_per_rank

    @property
    def recv_per_rank(self) -> int:
        if self.max_total_recv_tokens <= 0:
            return self.max_num_inp_token_per_rank
        return min(math.ceil(self.max_total_recv_tokens / self.world_size), self.max_num_inp_token_per_rank)

    @property
    def max_recv(self) -> int:
        return self.world_size * self.recv_per_rank


@dataclass
class Tokens:
    """What one rank gives to dispatch: a row per token."""

    input: Array
    indices: Array
    weights: Array | None = None
    scales: Array | None = None

    def __len__(self) -> int:
        return len(self.input)


@dataclass
class Rows:
    """The rows that a rank received, by source rank, then token; ``source`` has their ranks."""

    input: Array
    indices: Array
    weights: Array | None
    scales: Array | None
    source: list[tuple[int, int]]
    carried: ClassVar = ("input", "indices", "weights", "scales")

    def __len__(self) -> int:
        return len(self.source)

    def positions(self, config: Config) -> list[int]:
        """What get_dispatch_src_token_pos returns."""
        return [rank * config.max_send + token for rank, token in self.source]


def rank_of(config: Config, expert: int) -> int | None:
    """The rank that owns a global expert id; None for a sentinel, which no rank owns."""
    if not 0 <= expert < config.world_size * config.num_experts_per_rank:
        return None
    return expert // config.num_experts_per_rank


def destinations(config: Config, ids: Sequence[int]) -> list[int]:
    """The ranks that one token goes to, each once, ascending."""
    return sorted({rank for rank in (rank_of(config, int(expert)) for expert in ids) if rank is not None})


def count_matrix(config: Config, tokens: Sequence[Tokens]) -> list[list[int]]:
    """How many rows each source (first index) has for each destination (second index)."""
    counts = [[0] * config.world_size for _ in range(config.world_size)]
    for source, mine in enumerate(tokens):
        for ids in mine.indices:
            for rank in destinations(config, ids):
                counts[source][rank] += 1
    return counts


def admitted(config: Config, tokens: Sequence[Tokens]) -> list[bool]:
    """Which ranks may send: in rank order, each whose rows still fit below max_recv at every destination."""
    used = [0] * config.world_size
    answer = []
    for row in count_matrix(config, tokens):
        fits = all(u + c <= config.max_recv for u, c in zip(used, row, strict=True))
        if fits:
            used = [u + c for u, c in zip(used, row, strict=True)]
        answer.append(fits)
    return answer


def take(tokens: Sequence[Tokens], name: str, source: list[tuple[int, int]]) -> Any:
    """The rows that ``source`` lists, out of one field of every rank's tokens."""
    fields = [getattr(mine, name) for mine in tokens]
    if fields[0] is None:
        return None
    rows = [fields[rank][token] for rank, token in source]
    return np.array(rows, fields[0].dtype).reshape(len(rows), fields[0].shape[1])


def dispatch(config: Config, tokens: Sequence[Tokens]) -> list[Rows]:
    """Send each token once to each rank that owns one of its experts; a rank that is not admitted sends nothing."""
    may_send = admitted(config, tokens)
    received = []
    for here in range(config.world_size):
        source = [
            (rank, token)
            for rank, mine in enumerate(tokens)
            for token, ids in enumerate(mine.indices)
            if may_send[rank] and here in destinations(config, ids)
        ]
        received.append(Rows(*(take(tokens, name, source) for name in Rows.carried), source))
    return received


def local_expert_count(config: Config, here: int, rows: Rows) -> Array:
    """How many (row, k) pairs name each expert of rank ``here``."""
    counts = np.zeros(config.num_experts_per_rank, np.int32)
    for ids in rows.indices:
        for expert in ids:
            if rank_of(config, int(expert)) == here:
                counts[int(expert) - here * config.num_experts_per_rank] += 1
    return counts


def combine(
    config: Config,
    tokens: Sequence[Tokens],
    rows: Sequence[Rows],
    outputs: Sequence[Array],
    weights: Sequence[Array] | None = None,
    *,
    weighted: bool = False,
    transport: Callable[[Array], Array] = lambda row: row.astype(np.float32),
    per_host: int | None = None,
) -> list[tuple[Array, Array | None]]:
    """Sum, for each token, the output rows of the ranks it went to: in float32, rounded once.

    ``outputs[rank]`` has a row for each of ``rows[rank]``, and so has ``weights[rank]``, whose rows are summed alike.
    ``weighted`` multiplies the row of each rank by the token's weights, as given to dispatch, for experts there.
    ``transport`` is what a row becomes on its way. With ``per_host`` each host of so many ranks sums the rows it has of
    another's tokens first, and rounds that once more.
    """
    place = [{source: n for n, source in enumerate(r.source)} for r in rows]
    results: list[tuple[Array, Array | None]] = []
    for here, mine in enumerate(tokens):
        out = np.zeros((len(mine), outputs[here].shape[1]), outputs[here].dtype)
        out_weights = np.zeros((len(mine), config.num_experts_per_token), np.float32)
        for token, ids in enumerate(mine.indices):
            total, host_of = np.zeros(out.shape[1], np.float32), lambda rank: rank // (per_host or config.world_size)
            for host, ranks in groupby(destinations(config, ids), host_of):
                part, part_weights = np.zeros_like(total), np.zeros_like(out_weights[token])
                # What is far adds up by itself.
                to, to_weights = (total, out_weights[token]) if host == host_of(here) else (part, part_weights)
                for rank in ranks:
                    row = place[rank].get((here, token))
                    if row is None:
                        continue  # this rank was not admitted
                    share = weight_at(config, rank, mine, token) if weighted else np.float32(1)
                    to += share * transport(outputs[rank][row])
                    if weights is not None:
                        to_weights += weights[rank][row]
                total += part.astype(out.dtype).astype(np.float32)
                out_weights[token] += part_weights
            out[token] = total.astype(out.dtype)
        results.append((out, None if weights is None else out_weights))
    return results


def weight_at(config: Config, rank: int, tokens: Tokens, token: int) -> np.float32:
    """The sum of a token's weights for experts of ``rank``."""
    assert tokens.weights is not None
    pairs = zip(tokens.indices[token], tokens.weights[token], strict=True)
    return np.float32(sum((w for e, w in pairs if rank_of(config, int(e)) == rank), np.float32(0)))


def fp8_direct_cast(row: Array) -> Array:
    """A row as it comes out of the quant_type of that name: every element through float8_e4m3fn, saturated."""
    clipped = np.clip(row.astype(np.float32), -E4M3_MAX, E4M3_MAX)
    return clipped.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def fp8_blockwise(row: Array, blocks: int = BLOCKS) -> Array:
    """A row as it comes out of the quant_type of that name: each block scaled so that its largest element is 448."""
    values = row.astype(np.float32)
    size = math.ceil(len(values) / blocks)
    back = np.zeros_like(values)
    for start in range(0, len(values), size):
        block = values[start : start + size]
        scale = np.abs(block).max() / np.float32(E4M3_MAX)
        if scale > 0:
            back[start : start + size] = fp8_direct_cast(block / scale) * scale
    return back


@dataclass
class Packed:
    """Rows grouped by local expert, as the standard-MoE adapters hand them out."""

    x: Array  # [experts, world * max tokens, hidden]
    count: Array  # [experts]
    row: Array  # [experts, world * max tokens]: which received row it is


def pack(config: Config, here: int, rows: Rows) -> Packed:
    """Give each expert of rank ``here`` the received rows that name it, in their order."""
    experts, room = config.num_experts_per_rank, config.max_send
    packed = Packed(
        np.zeros((experts, room, rows.input.shape[1]), rows.input.dtype),
        np.zeros(experts, np.int32),
        np.zeros((experts, room), np.int32),
    )
    for local in range(experts):
        for n, ids in enumerate(rows.indices):
            if here * experts + local in ids:
                packed.x[local, packed.count[local]] = rows.input[n]
                packed.row[local, packed.count[local]] = n
                packed.count[local] += 1
    return packed


def unpack(config: Config, here: int, rows: Rows, packed: Packed, outputs: Array) -> Array:
    """Add up what the experts of rank ``here`` made of each row, times the row's weights for them."""
    assert rows.weights is not None
    total = np.zeros((len(rows), outputs.shape[2]), np.float32)
    for local in range(config.num_experts_per_rank):
        for slot in range(packed.count[local]):
            n = packed.row[local, slot]
            for expert, weight in zip(rows.indices[n], rows.weights[n], strict=True):
                if expert == here * config.num_experts_per_rank + local:
                    total[n] += weight * outputs[local, slot].astype(np.float32)
    return total.astype(outputs.dtype)
