# SPDX-License-Identifier: MIT
"""A mixture-of-experts layer whose experts are spread over the ranks, for train.py and infer.py.

mori.ops moves the tokens. Experts, gate and gradients are plain PyTorch. Tensors are on the CPU, or
with MORI_SHMEM_DEVICE=gpu on the GPU of mori.shmem's heap.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from mori import shmem
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp


@dataclass(frozen=True)
class Shape:
    """The sizes of the layer.

    Elements of a token, inner elements of an expert, experts of a rank, experts of a token, tokens
    of a rank.
    """

    hidden: int = 64
    inner: int = 96
    experts: int = 4
    topk: int = 3
    tokens: int = 32


def start(shape: Shape) -> tuple[int, int, EpDispatchCombineOp, torch.device]:
    """Join the ranks that torchrun started, if any.

    Returns this rank, the number of ranks, an op, and the device of its tensors.
    """
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch._C._distributed_c10d._register_process_group("moe", dist.group.WORLD)
    shmem.shmem_torch_process_group_init("moe")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    op = new_op(shape, rank, ranks)
    where: torch.device = op.local_expert_count.device
    if where.type == "cuda":
        torch.cuda.set_device(where)
    return rank, ranks, op, where


def stop(op: EpDispatchCombineOp) -> None:
    op.close()
    shmem.shmem_finalize()
    dist.destroy_process_group()


def new_op(shape: Shape, rank: int, ranks: int) -> EpDispatchCombineOp:
    return EpDispatchCombineOp(
        EpDispatchCombineConfig(
            data_type=torch.float32,
            rank=rank,
            world_size=ranks,
            hidden_dim=shape.hidden,
            scale_dim=0,
            scale_type_size=0,
            max_token_type_size=4,
            max_num_inp_token_per_rank=shape.tokens,
            num_experts_per_rank=shape.experts,
            num_experts_per_token=shape.topk,
        )
    )


class Experts(torch.nn.Module):
    """A range of experts. An expert has the same parameters on every rank that makes it."""

    def __init__(self, shape: Shape, first: int, count: int) -> None:
        super().__init__()
        self.first, self.count = first, count
        into, out = [], []
        for expert in range(first, first + count):
            random = torch.Generator().manual_seed(1000 + expert)
            into.append(torch.randn(shape.hidden, shape.inner, generator=random) / shape.hidden**0.5)
            out.append(torch.randn(shape.inner, shape.hidden, generator=random) / shape.inner**0.5)
        self.into = torch.nn.Parameter(torch.stack(into))
        self.out = torch.nn.Parameter(torch.stack(out))

    def forward(self, rows: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        """Return these experts' results for each row times its weights; 0 for rows of others.

        All rows go through all experts, so that no shape depends on data. Real layers group the rows instead.
        """
        made = torch.zeros_like(rows)
        for i in range(self.count):
            share = (weights * (experts == self.first + i)).sum(1, keepdim=True)
            made = made + share * (torch.nn.functional.silu(rows @ self.into[i]) @ self.out[i])
        return made


class Gate(torch.nn.Module):
    """Chooses the experts of each token and their weights. All ranks have the same gate."""

    def __init__(self, shape: Shape, experts: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(7)
        self.scores = torch.nn.Parameter(torch.randn(shape.hidden, experts, generator=random) / shape.hidden**0.5)
        self.topk = shape.topk

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best, experts = (tokens @ self.scores).topk(self.topk, 1)
        return best.softmax(1), experts.to(torch.int32)


class Dispatch(torch.autograd.Function):
    """Dispatch with gradients. Rows are copies of tokens, so backward is a combine."""

    @staticmethod
    def forward(ctx: Any, op: Any, tokens: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor) -> Any:
        rows, row_weights, _, row_experts, total, route = op.dispatch(
            tokens, weights, None, experts, return_routing=True
        )
        ctx.op, ctx.route, ctx.experts = op, route, experts
        n = int(total[0])
        # The next call overwrites the op's buffers, and autograd keeps these tensors: so copy them.
        row_experts = row_experts[:n].clone()
        ctx.mark_non_differentiable(row_experts)
        ctx.set_materialize_grads(True)
        return rows[:n].clone(), row_weights[:n].clone(), row_experts, route

    @staticmethod
    def backward(ctx: Any, rows: torch.Tensor, weights: torch.Tensor, *_: Any) -> Any:
        n = len(ctx.experts)
        sums, weight_sums = ctx.op.combine(rows.contiguous(), weights.contiguous(), ctx.experts, routing=ctx.route)
        if weight_sums is None:  # None: this rank received no row
            weight_sums = torch.zeros_like(ctx.experts, dtype=torch.float32)
        return None, sums[:n].clone(), weight_sums[:n].clone(), None


class Combine(torch.autograd.Function):
    """Combine with gradients. Every row gets the gradient of its token's sum: a dispatch."""

    @staticmethod
    def forward(ctx: Any, op: Any, rows: torch.Tensor, experts: torch.Tensor, route: Any) -> torch.Tensor:
        ctx.op, ctx.route, ctx.experts, ctx.rows = op, route, experts, len(rows)
        sums, _ = op.combine(rows.contiguous(), None, experts, routing=route)
        return sums[: len(experts)].clone()

    @staticmethod
    def backward(ctx: Any, sums: torch.Tensor) -> Any:
        rows, *_ = ctx.op.dispatch(sums.contiguous(), None, None, ctx.experts, routing=ctx.route)
        return None, rows[: ctx.rows].clone(), None, None


class MoE(torch.nn.Module):
    """The layer of one rank. All ranks have equal gates; no other rank has this rank's experts."""

    def __init__(self, shape: Shape, op: EpDispatchCombineOp, rank: int, ranks: int) -> None:
        super().__init__()
        self.op = op
        self.gate = Gate(shape, ranks * shape.experts)
        self.experts = Experts(shape, rank * shape.experts, shape.experts)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        weights, experts = self.gate(tokens)
        rows, row_weights, row_experts, route = Dispatch.apply(self.op, tokens, weights, experts)
        made = self.experts(rows, row_weights, row_experts)
        return Combine.apply(self.op, made, experts, route)


class Alone(torch.nn.Module):
    """The same layer in one process, with all experts: the reference for MoE."""

    def __init__(self, shape: Shape, ranks: int) -> None:
        super().__init__()
        self.gate = Gate(shape, ranks * shape.experts)
        self.experts = Experts(shape, 0, ranks * shape.experts)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.experts(tokens, *self.gate(tokens))


def tokens_of(shape: Shape, rank: int, step: int) -> torch.Tensor:
    """The tokens of a rank, which any rank can compute. Ranks have different numbers of tokens."""
    random = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(shape.tokens - 3 * (rank % 4), shape.hidden, generator=random)
