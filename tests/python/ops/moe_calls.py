# SPDX-License-Identifier: MIT
"""What the ranks do in test_property.py: dispatch, let experts work, combine. Without pytest: ranks start fast."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arrays import DTYPES, Array, Kind, Place, fill, make, take
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineKernelType, EpDispatchCombineOp
from ranks import Rank
from reference import Tokens


@dataclass(frozen=True)
class Way:
    """How the op is called: everything about a journey that is the same on all ranks and in all its rounds."""

    config: dict[str, Any]  # of EpDispatchCombineConfig, but for rank and data_type
    dtype: str
    output: str = "float32"  # the element type that experts make
    kernel: str = "IntraNode"
    kind: Kind = "numpy"
    split: bool = False  # in two phases
    zero_copy: bool = False  # the experts write into the registered buffer
    replay: bool = False  # dispatch again with the routing handle of the first time
    pass_weights: bool = False  # the received weights are handed to combine
    weighted: bool = False


@dataclass
class Result:
    """What one rank saw in one round, as arrays of numpy, cut to the rows that count."""

    input: Array
    indices: Array
    weights: Array
    scales: Array | None
    positions: list[int]
    expert_count: Array
    out: Array
    out_weights: Array | None
    shapes: dict[str, Any] = field(default_factory=dict)


def expert(here: int, rows: Array, dtype: Any) -> Array:
    """What the experts of a rank make of its rows: of moderate size, whatever the bytes of packed float4 are."""
    rows = rows % 8 if rows.dtype == np.uint8 else rows
    return ((here + 1) * rows.astype(np.float32) + np.float32(0.5)).astype(dtype)


def journey(rank: Rank, way: Way, rounds: list[Tokens]) -> list[Result]:
    """Make an op and run a round for each entry of ``rounds``."""
    kind: Kind | None = {"gpu": None, "gpu_torch": "torch"}.get(way.kind, way.kind)
    data_type = make(kind, rounds[0].input[:0], way.dtype).dtype if kind else way.dtype
    kernel = EpDispatchCombineKernelType[way.kernel]
    config = EpDispatchCombineConfig(rank=rank.me, data_type=data_type, kernel_type=kernel, **way.config)
    config.use_external_inp_buf = not way.zero_copy
    op = EpDispatchCombineOp(config)
    Place.gpu = op._place
    return [_round(op, rank, way, tokens) for tokens in rounds]


def capped(rank: Rank, way: Way, tokens: Tokens) -> tuple[str, list[int], Array]:
    """A round in which ranks may be refused: why this one was, whose rows it has, and what rows of rank + 1 sum to."""
    kernel = EpDispatchCombineKernelType[way.kernel]
    op = EpDispatchCombineOp(EpDispatchCombineConfig(rank=rank.me, data_type=None, kernel_type=kernel, **way.config))
    refused = ""
    try:
        op.dispatch(tokens.input, tokens.weights, None, tokens.indices)
    except Exception as err:
        refused = f"{type(err).__name__}: {err}"
    positions = op.get_dispatch_src_token_pos().tolist()
    buffer = op.get_registered_combine_input_buffer(tokens.input.dtype)
    buffer[:] = rank.me + 1
    sums, _ = op.combine(buffer, None, tokens.indices, use_external_inp_buf=0)
    return refused, positions, sums[: len(tokens)].copy()


def _round(op: EpDispatchCombineOp, rank: Rank, way: Way, tokens: Tokens) -> Result:
    indices, weights = make(way.kind, tokens.indices), make(way.kind, tokens.weights)
    sent = (make(way.kind, tokens.input, way.dtype), weights, make(way.kind, tokens.scales), indices)
    routing: dict[str, Any] = {}
    if way.split:
        received = op.dispatch_send(*sent)
        op.dispatch_recv(call_local_expert_count=True)
    elif way.replay:
        *_, routing["routing"] = op.dispatch(*sent, return_routing=True)
        received = op.dispatch(*sent, call_local_expert_count=True, **routing)
    else:
        received = op.dispatch(*sent, call_local_expert_count=True)
    rows, weights, scales, ids, total = received
    n = int(take(total)[0])
    came = take(rows)[:n]
    outputs = make(way.kind, expert(rank.me, came, DTYPES[way.output]), way.output)
    result = Result(
        came, take(ids)[:n], take(weights)[:n], None if scales is None else take(scales)[:n],
        take(op.get_dispatch_src_token_pos()).tolist(), take(op.local_expert_count), came[:0], None,
        {"rows": tuple(rows.shape), "weights": tuple(weights.shape), "indices": tuple(ids.shape),
         "scales": None if scales is None else tuple(scales.shape)},
    )  # fmt: skip
    given = weights if way.pass_weights or way.weighted else None
    out, out_weights = _combine(op, way, outputs, given, indices, routing)
    result.out = take(out)[: len(tokens)]
    result.out_weights = None if out_weights is None else take(out_weights)[: len(tokens)]
    result.shapes["out"] = tuple(out.shape)
    return result


def _combine(op: EpDispatchCombineOp, way: Way, outputs: Any, weights: Any, indices: Any, routing: Any) -> Any:
    options = dict(routing)
    if way.zero_copy:
        buffer = op.get_registered_combine_input_buffer(outputs.dtype, outputs.shape[1])
        fill(buffer, outputs)
        outputs = buffer
    if way.weighted:
        options["weighted"] = True
    if way.split:
        results = op.combine_send(outputs, weights, indices)
        op.combine_recv()
        return results
    return op.combine(outputs, weights, indices, **options)
