# SPDX-License-Identifier: MIT
"""Train a mixture-of-experts layer over several ranks, and check each step.

    torchrun --nproc-per-node 2 examples/moe/train.py
    MORI_SHMEM_DEVICE=gpu torchrun --nproc-per-node 2 examples/moe/train.py

Each step is compared with the same training in one process. Every rank has its own tokens, its own
experts and a copy of the gate. An expert's gradient is complete when backward ends, because the
gradients of its rows arrive from all ranks. all_reduce sums the gradients of the gate.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from layer import Alone, MoE, Shape, start, stop, tokens_of


def loss_of(out: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The loss of a layer that learns to reverse its tokens."""
    return (out - tokens.flip(1)).square().sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    shape = Shape()
    rank, ranks, op, where = start(shape)
    layer, alone = MoE(shape, op, rank, ranks).to(where), Alone(shape, ranks).to(where)
    optimizers = [torch.optim.SGD(module.parameters(), lr=2e-5) for module in (layer, alone)]
    for step in range(args.steps):
        everybody = [tokens_of(shape, r, step).to(where).requires_grad_() for r in range(ranks)]
        mine = everybody[rank].detach().clone().requires_grad_()
        for optimizer in optimizers:
            optimizer.zero_grad()

        loss = loss_of(layer(mine), mine.detach())
        loss.backward()
        scores = layer.gate.scores.grad
        assert scores is not None
        summed = scores.cpu()
        dist.all_reduce(summed)
        scores.copy_(summed)

        whole = sum((loss_of(alone(tokens), tokens.detach()) for tokens in everybody), torch.zeros((), device=where))
        whole.backward()
        compare(layer, alone, mine, everybody[rank], shape, rank)
        for optimizer in optimizers:
            optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {whole.item():.1f} over {ranks} ranks")
    stop(op)
    print(f"rank {rank}: {args.steps} steps as in one process")


def compare(layer: MoE, alone: Alone, mine: torch.Tensor, there: torch.Tensor, shape: Shape, rank: int) -> None:
    """Check that gradients and parameters equal those of the single process."""
    part = slice(rank * shape.experts, (rank + 1) * shape.experts)
    pairs = {
        "gate": (layer.gate.scores, alone.gate.scores, slice(None)),
        "experts in": (layer.experts.into, alone.experts.into, part),
        "experts out": (layer.experts.out, alone.experts.out, part),
        "tokens": (mine, there, slice(None)),
    }
    for name, (ours, theirs, which) in pairs.items():
        assert ours.grad is not None
        assert theirs.grad is not None
        told = f"rank {rank}: {name} differ from those of one process"
        torch.testing.assert_close(
            ours, theirs[which], rtol=1e-3, atol=1e-4, msg=lambda text, told=told: f"{told}: {text}"
        )
        torch.testing.assert_close(
            ours.grad,
            theirs.grad[which],
            rtol=2e-3,
            atol=2e-3,
            msg=lambda text, told=told: f"gradients, {told}: {text}",
        )


if __name__ == "__main__":
    main()
