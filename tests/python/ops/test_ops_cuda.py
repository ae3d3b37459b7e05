# SPDX-License-Identifier: MIT
"""mori.ops with torch on real GPUs: graphs, streams, compiled surroundings, a layer's backward pass, ranks that die."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import gpus
from mori._errors import PEFailedError
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
from ranks import Rank, Ranks

pytestmark = pytest.mark.timeout(300)
HIDDEN, TOPK, EXPERTS, TOKENS = 256, 4, 8, 64  # experts of a rank


@pytest.fixture
def cuda_ranks(gpu_ranks: Ranks) -> Ranks:
    gpus.need_cuda_torch()
    return gpu_ranks


def new_op(rank: Rank, hidden: int = HIDDEN, topk: int = TOPK, **more: Any) -> tuple[Any, EpDispatchCombineOp]:
    """torch on the op's GPU, and the op."""
    import torch

    config = EpDispatchCombineConfig(torch.bfloat16, rank.me, rank.size, hidden, 0, 0, 2, TOKENS, EXPERTS, topk, **more)
    op = EpDispatchCombineOp(config)
    torch.cuda.set_device(op._place)
    torch.manual_seed(rank.me)
    return torch, op


class Tokens:
    """A rank's tokens, small whole numbers, with the sums that a round makes if experts double."""

    def __init__(self, torch: Any, rank: Rank, n: int = TOKENS, hidden: int = HIDDEN, topk: int = TOPK) -> None:
        self.torch, self.rank = torch, rank
        self.rows = torch.zeros(n, hidden, dtype=torch.bfloat16, device="cuda")
        self.indices = torch.zeros(n, topk, dtype=torch.int32, device="cuda")
        self.draw()

    def draw(self) -> None:
        """Others, in the same memory."""
        torch, (n, topk) = self.torch, self.indices.shape
        self.rows.copy_(torch.randint(-8, 9, self.rows.shape, device="cuda"))
        scores = torch.rand(n, self.rank.size * EXPERTS, device="cuda")
        self.indices.copy_(scores.topk(topk).indices)

    def doubled(self) -> Any:
        to = self.indices // EXPERTS
        times = sum((to == d).any(1).int() for d in range(self.rank.size))
        return (2 * self.rows * times[:, None]).to(self.rows.dtype)


def there_and_back(op: EpDispatchCombineOp, tokens: Tokens) -> Any:
    rows = op.dispatch(tokens.rows, None, None, tokens.indices)[0]
    return op.combine(rows * 2, None, tokens.indices)[0]


def same(torch: Any, op: EpDispatchCombineOp, out: Any, tokens: Tokens) -> None:
    torch.cuda.current_stream().synchronize()
    op.check()
    wanted = tokens.doubled()
    torch.testing.assert_close(out[: len(wanted)], wanted, rtol=0, atol=0)


def _graphs(rank: Rank) -> None:
    torch, op = new_op(rank)
    tokens, other = Tokens(torch, rank), Tokens(torch, rank, 5)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        same(torch, op, there_and_back(op, tokens), tokens)  # warm
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = there_and_back(op, tokens)
        for i in range(30):
            tokens.draw()
            graph.replay()
            same(torch, op, out, tokens)
            if i % 3 == 0:
                same(torch, op, there_and_back(op, other), other)
        for _ in range(50):  # in a row, without the host
            graph.replay()
        same(torch, op, out, tokens)
    del graph
    op.close()


def test_graphs_are_replayed_between_eager_calls(cuda_ranks: Ranks) -> None:
    cuda_ranks.world(2).run(_graphs, timeout=120)


def _two_graphs(rank: Rank) -> None:
    """One for few tokens and one for many, as decoding has them; a graph may hold more than one layer."""
    torch, op = new_op(rank)
    sizes = (1, 7, TOKENS)
    batches = [Tokens(torch, rank, n) for n in sizes]
    stream, graphs, outs = torch.cuda.Stream(), [], []
    with torch.cuda.stream(stream):
        for tokens in batches:
            there_and_back(op, tokens)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                there_and_back(op, tokens)
                out = there_and_back(op, tokens).clone()
            graphs.append(graph)
            outs.append(out)
        for i in (2, 0, 1, 1, 0, 2, 2):
            batches[i].draw()
            graphs[i].replay()
            same(torch, op, outs[i], batches[i])
    graphs.clear()
    op.close()


def test_graphs_of_several_sizes_share_an_op(cuda_ranks: Ranks) -> None:
    cuda_ranks.world(2).run(_two_graphs, timeout=120)


def _several(rank: Rank) -> None:
    torch, first = new_op(rank)
    _, second = new_op(rank, 2 * HIDDEN, TOPK)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    pairs = [(first, Tokens(torch, rank)), (second, Tokens(torch, rank, 9, 2 * HIDDEN))]
    torch.cuda.synchronize()
    for _ in range(20):
        outs = []
        for stream, (op, tokens) in zip(streams, pairs, strict=True):
            with torch.cuda.stream(stream):
                outs.append(there_and_back(op, tokens))
        for stream, out, (op, tokens) in zip(streams, outs, pairs, strict=True):
            with torch.cuda.stream(stream):
                same(torch, op, out, tokens)
    # One op on both streams in turn, each behind the other.
    op, tokens = pairs[0]
    for i in range(10):
        here, there = streams[i % 2], streams[1 - i % 2]
        here.wait_stream(there)
        with torch.cuda.stream(here):
            out = there_and_back(op, tokens)
    with torch.cuda.stream(streams[1]):
        same(torch, op, out, tokens)
    for op, _ in pairs:
        op.close()


def test_several_ops_on_two_streams(cuda_ranks: Ranks) -> None:
    cuda_ranks.world(2).run(_several, timeout=120)


def _compiled(rank: Rank) -> None:
    torch, op = new_op(rank)
    tokens = Tokens(torch, rank)

    def layer(rows: Any, indices: Any) -> Any:
        came = op.dispatch(rows + 0, None, None, indices)[0]
        out = op.combine((came * 2).contiguous(), None, indices)[0]
        return out[: rows.shape[0]] + 1

    compiled = torch.compile(layer)
    for _ in range(4):
        tokens.draw()
        out = compiled(tokens.rows, tokens.indices)
        same(torch, op, out - 1, tokens)
    op.close()


def test_compiled_surroundings(cuda_ranks: Ranks) -> None:
    cuda_ranks.world(2).run(_compiled, timeout=240)


def _rounds(rank: Rank, hidden: int) -> None:
    """Thousands of calls back to back, one rank now and then late."""
    torch, op = new_op(rank, hidden)
    tokens = Tokens(torch, rank, TOKENS, hidden)
    out = there_and_back(op, tokens)
    for i in range(2000):
        if i % 100 == rank.me:
            torch.cuda._sleep(10**6)
        out = there_and_back(op, tokens)
    same(torch, op, out, tokens)
    op.close()


@pytest.mark.parametrize("hidden", [HIDDEN, HIDDEN + 8])
def test_thousands_of_calls(cuda_ranks: Ranks, hidden: int) -> None:
    cuda_ranks.world(2).run(_rounds, hidden, timeout=200)


def _calls_do_not_wait(rank: Rank) -> None:
    torch, op = new_op(rank)
    tokens = Tokens(torch, rank)
    there_and_back(op, tokens)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        rows = op.dispatch(tokens.rows, None, None, tokens.indices)[0]
        out = op.combine(rows, None, tokens.indices)[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before, "a call allocates"
    same(torch, op, out * 2, tokens)
    op.close()


def test_calls_neither_allocate_nor_wait(cuda_ranks: Ranks) -> None:
    cuda_ranks.world(2).run(_calls_do_not_wait)


@pytest.fixture
def mortal(gpu: None) -> Iterator[Ranks]:
    """Two ranks of their own, of which one may die."""
    gpus.need_cuda_torch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORI_SHMEM_DEVICE", "gpu")
        ranks = Ranks(environment={"MORI_SHMEM_HEAP_SIZE": "64M", "MORI_EP_TIMEOUT_MS": "3000"})
        yield ranks
        ranks.stop()


def _keep_calling(torch: Any, op: EpDispatchCombineOp, tokens: Tokens) -> None:
    """What a rank was called with when another died may have gone well; what follows does not."""
    for _ in range(3):
        there_and_back(op, tokens)
        torch.cuda.synchronize()
        op.check()


def _dies(rank: Rank, when: str) -> str:
    torch, op = new_op(rank)
    tokens = Tokens(torch, rank)
    same(torch, op, there_and_back(op, tokens), tokens)
    if rank.me == 1:
        if when == "in dispatch":
            op.dispatch(tokens.rows, None, None, tokens.indices)
        os.kill(os.getpid(), 9)
    with pytest.raises((TimeoutError, PEFailedError)) as raised:
        _keep_calling(torch, op, tokens)
    op.exclude([1])
    alone = op.dispatch(tokens.rows, None, None, tokens.indices)
    out = op.combine(alone[0] * 2, None, tokens.indices)[0]
    torch.cuda.synchronize()
    op.check()
    here = (tokens.indices // EXPERTS == 0).any(1)
    assert int(alone[4][0]) == 0, "combine has reset it"
    torch.testing.assert_close(out[:TOKENS], 2 * tokens.rows * here[:, None], rtol=0, atol=0)
    return str(raised.value)


@pytest.mark.parametrize("when", ["between calls", "in dispatch"])
def test_a_rank_that_dies_is_named_and_the_other_goes_on(mortal: Ranks, when: str) -> None:
    first, _ = mortal.world(2, anew=True).outcomes(_dies, when, timeout=90)
    assert first.error is None, first.text
    assert "rank 1" in first.value or "PE 1" in first.value
