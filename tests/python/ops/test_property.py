# SPDX-License-Identifier: MIT
"""mori.ops against the reference: any shapes, element types, routings and numbers of tokens, on 1 to 8 ranks.

MORI_EXAMPLES=1000 in the environment tries that many of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moe_calls import Result, Way, capped, expert, journey

import reference as ref
from arrays import DTYPES, Array, same_bytes
from ranks import Each, Ranks
from support import has_torch

WORLDS = range(1, 9)
ROUTINGS = ("uniform", "skewed", "all to one", "none", "sentinels")
KERNELS = ("IntraNode", "InterNode", "InterNodeV1", "InterNodeV1LL", "AsyncLL", "IntraNodeLL")
FLOATS = ("float32", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz")

few = settings(
    max_examples=int(os.environ.get("MORI_EXAMPLES", "30")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
pytestmark = pytest.mark.timeout(300 if "MORI_EXAMPLES" not in os.environ else 0)


@dataclass
class Case:
    """One example: how the op is called, and what every rank hands it in every round."""

    way: Way
    config: ref.Config
    rounds: list[list[ref.Tokens]]  # [round][rank]


def choose(rng: np.random.Generator, routing: str, n: int, topk: int, experts: int) -> Array:
    """The experts of n tokens. With few experts a token may name one twice."""
    if routing == "none":
        return np.full((n, topk), -1, np.int32)
    if routing == "all to one":
        return np.full((n, topk), rng.integers(experts), np.int32)
    if routing == "skewed":
        return np.minimum(rng.geometric(0.5, (n, topk)) - 1, experts - 1).astype(np.int32)
    ids = rng.integers(experts, size=(n, topk), dtype=np.int32)
    if routing == "sentinels":
        ids[rng.random((n, topk)) < 0.5] = -1
        ids[rng.random((n, topk)) < 0.1] = experts + rng.integers(3)
    return ids


def values(rng: np.random.Generator, dtype: str, shape: tuple[int, int]) -> Array:
    """Numbers of moderate size; any bytes for a type that is only moved."""
    if dtype not in FLOATS:
        return rng.integers(256, size=shape, dtype=np.uint8).view(DTYPES[dtype])
    return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


@st.composite
def tokens_of(draw: Any, way: Way, config: ref.Config, scales: str | None) -> list[ref.Tokens]:
    """What every rank hands to one dispatch."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    routing = draw(st.sampled_from(ROUTINGS))
    experts = config.world_size * config.num_experts_per_rank
    result = []
    for _ in range(config.world_size):
        n = draw(st.integers(0, config.max_num_inp_token_per_rank))
        ids = choose(rng, routing, n, config.num_experts_per_token, experts)
        tokens = ref.Tokens(values(rng, way.dtype, (n, way.config["hidden_dim"])), ids)
        tokens.weights = rng.random((n, config.num_experts_per_token), np.float32)
        if scales is not None:
            tokens.scales = values(rng, scales, (n, way.config["scale_dim"]))
        result.append(tokens)
    return result


@st.composite
def cases(draw: Any, world: int, **fixed: Any) -> Case:
    """An op of ``world`` ranks and one to three rounds through it; ``fixed`` sets fields of Way."""
    kind = draw(st.sampled_from(("numpy", "torch") if has_torch() and world <= 4 else ("numpy",)))
    dtype = draw(st.sampled_from((*FLOATS, "float4_e2m1fn_x2") if kind == "torch" else FLOATS))
    output = draw(st.sampled_from(("float32", "bfloat16") if dtype not in FLOATS else (dtype, "float32", "bfloat16")))
    scales = draw(st.sampled_from((None, "float32", "float8_e8m0fnu")))
    config = {
        "world_size": world,
        "hidden_dim": draw(st.sampled_from((1, 3, 8, 33, 64, 130))),
        "scale_dim": draw(st.integers(1, 5)) if scales else 0,
        "scale_type_size": DTYPES[scales].itemsize if scales else 0,
        "max_token_type_size": max(DTYPES[dtype].itemsize, DTYPES[output].itemsize),
        "max_num_inp_token_per_rank": draw(st.integers(1, 16)),
        "num_experts_per_rank": draw(st.integers(1, 6)),
        "num_experts_per_token": draw(st.integers(1, 8)),
    }
    kernel = draw(st.sampled_from(KERNELS))
    way = Way(
        config, dtype, output, kernel, kind,
        split=kernel == "AsyncLL",
        zero_copy=draw(st.booleans()),
        replay=draw(st.booleans()) and kernel in ("IntraNode", "InterNodeV1"),
        pass_weights=draw(st.booleans()),
    )  # fmt: skip
    way = replace(way, **fixed)
    names = ("world_size", "num_experts_per_rank", "num_experts_per_token", "max_num_inp_token_per_rank")
    shape = ref.Config(*(config[name] for name in names))
    rounds = draw(st.lists(tokens_of(way, shape, scales), min_size=1, max_size=3))
    return Case(way, shape, rounds)


def play(ranks: Ranks, case: Case, hosts: int, blocks: bool) -> list[list[Result]]:
    """Run the case and return what each rank saw: [round][rank]."""
    per_rank = [[tokens[rank] for tokens in case.rounds] for rank in range(case.config.world_size)]
    results = ranks.world(case.config.world_size, hosts, blocks=blocks).run(journey, case.way, Each(per_rank))
    return [list(together) for together in zip(*results, strict=True)]


def check_rows(case: Case, tokens: list[ref.Tokens], seen: list[Result]) -> list[ref.Rows]:
    """Compare what dispatch brought, and return what it should have."""
    wanted = ref.dispatch(case.config, tokens)
    for here, (want, got) in enumerate(zip(wanted, seen, strict=True)):
        stride = replace(case.config, world_size=1) if case.way.kernel == "InterNode" else case.config
        assert got.positions == want.positions(stride)
        assert same_bytes(got.input, want.input)
        assert same_bytes(got.indices, want.indices)
        assert same_bytes(got.weights, want.weights)
        assert (got.scales is None) == (want.scales is None)
        assert want.scales is None or same_bytes(got.scales, want.scales)
        assert got.expert_count.tolist() == ref.local_expert_count(case.config, here, want).tolist()
        check_shapes(case, got)
    return wanted


def check_shapes(case: Case, got: Result) -> None:
    """The arrays that come back are as long as can ever be needed."""
    config, given = case.config, case.way.config
    assert got.shapes == {
        "rows": (config.max_recv, given["hidden_dim"]),
        "weights": (config.max_recv, config.num_experts_per_token),
        "indices": (config.max_recv, config.num_experts_per_token),
        "scales": (config.max_recv, given["scale_dim"]) if given["scale_dim"] else None,
        "out": (config.max_num_inp_token_per_rank, given["hidden_dim"]),
    }


def check_sums(
    case: Case, tokens: list[ref.Tokens], rows: list[ref.Rows], seen: list[Result], per_host: int | None = None
) -> None:
    """Compare what combine brought back, bit for bit but for the sign of zero. Hosts of ``per_host`` ranks sum."""
    outputs = [expert(here, r.input, DTYPES[case.way.output]) for here, r in enumerate(rows)]
    passed = [r.weights for r in rows] if case.way.pass_weights or case.way.weighted else None
    wanted = ref.combine(case.config, tokens, rows, outputs, passed, weighted=case.way.weighted, per_host=per_host)
    for (out, out_weights), got in zip(wanted, seen, strict=True):
        np.testing.assert_array_equal(got.out.astype(np.float32), out.astype(np.float32))
        assert (got.out_weights is None) == (out_weights is None)
        if out_weights is not None:
            np.testing.assert_array_equal(got.out_weights, out_weights)


def check(
    ranks: Ranks, case: Case, sums: Callable[..., None] = check_sums, hosts: int = 1, blocks: bool = False
) -> None:
    for tokens, seen in zip(case.rounds, play(ranks, case, hosts, blocks), strict=True):
        sums(case, tokens, check_rows(case, tokens, seen), seen)


@pytest.mark.parametrize("world", WORLDS)
@few
@given(data=st.data())
def test_dispatch_and_combine(ranks: Ranks, world: int, data: st.DataObject) -> None:
    check(ranks, data.draw(cases(world)))


@pytest.mark.parametrize(("world", "hosts"), [(2, 2), (4, 2), (5, 5)])
@few
@given(data=st.data())
def test_between_hosts(ranks: Ranks, world: int, hosts: int, data: st.DataObject) -> None:
    check(ranks, data.draw(cases(world)), hosts=hosts)


@pytest.mark.parametrize("world", [1, 2, 4])
@few
@given(data=st.data())
def test_combine_may_apply_the_weights_itself(ranks: Ranks, world: int, data: st.DataObject) -> None:
    case = cases(world, kernel="IntraNode", split=False, replay=False, weighted=True)
    check(ranks, data.draw(case))


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@few
@given(data=st.data())
def test_who_exceeds_a_receive_cap_is_refused_and_nobody_else(ranks: Ranks, world: int, data: st.DataObject) -> None:
    case = data.draw(cases(world, dtype="float32", kind="numpy", kernel="IntraNode", split=False))
    config = replace(case.config, max_total_recv_tokens=data.draw(st.integers(1, case.config.max_send)))
    case.way.config.update(max_total_recv_tokens=config.max_total_recv_tokens, scale_dim=0, max_token_type_size=4)
    [tokens, *_] = case.rounds
    refused, positions, sums = zip(*ranks.world(world).run(capped, case.way, Each(tokens)), strict=True)
    assert [not r for r in refused] == ref.admitted(config, tokens)
    rows = ref.dispatch(config, tokens)
    assert list(positions) == [r.positions(config) for r in rows]
    outputs = [np.full((len(r), case.way.config["hidden_dim"]), rank + 1, np.float32) for rank, r in enumerate(rows)]
    wanted = ref.combine(config, tokens, rows, outputs)
    assert [s.tolist() for s in sums] == [out.tolist() for out, _ in wanted]
    if any(refused):
        assert str(config.max_recv) in "".join(refused)


def bound(case: Case, tokens: ref.Tokens, token: int, outputs: list[Array], rows: list[ref.Rows], here: int) -> Array:
    """How far a sum of rows that went through float8 may lie from the exact one.

    A cast to float8_e4m3fn keeps 4 bits, so it moves an element by at most 1/16 of itself, or by half a step of the
    subnormals, 2^-10 times the scale. The sum is then rounded to bfloat16, which keeps 8 bits.
    """
    total = np.zeros(outputs[here].shape[1], np.float32)
    for rank in ref.destinations(case.config, tokens.indices[token]):
        row = np.abs(outputs[rank][rows[rank].source.index((here, token))].astype(np.float32))
        total += row / 16 + 2.0**-10 * max(1.0, row.max() / 448) + 2.0**-8 * row
    return total


@pytest.mark.parametrize("quant_type", ["fp8_direct_cast", "fp8_blockwise"])
@pytest.mark.parametrize("world", [1, 2, 4])
@few
@given(data=st.data())
def test_quantised_transport(ranks: Ranks, world: int, quant_type: str, data: st.DataObject) -> None:
    case = data.draw(cases(world, output="bfloat16", kernel="IntraNode", split=False, zero_copy=False, replay=False))
    case.way.config.update(quant_type=quant_type, max_token_type_size=4)
    transport = {"fp8_direct_cast": ref.fp8_direct_cast, "fp8_blockwise": ref.fp8_blockwise}[quant_type]

    def sums(case: Case, tokens: list[ref.Tokens], rows: list[ref.Rows], seen: list[Result]) -> None:
        outputs = [expert(here, r.input, DTYPES["bfloat16"]) for here, r in enumerate(rows)]
        exact = ref.combine(case.config, tokens, rows, outputs)
        quantised = ref.combine(case.config, tokens, rows, outputs, transport=transport)
        for here, got in enumerate(seen):
            np.testing.assert_array_equal(got.out.astype(np.float32), quantised[here][0].astype(np.float32))
            for token in range(len(tokens[here])):
                error = np.abs(got.out[token].astype(np.float32) - exact[here][0][token].astype(np.float32))
                assert (error <= bound(case, tokens[here], token, outputs, rows, here)).all()

    check(ranks, case, sums)
