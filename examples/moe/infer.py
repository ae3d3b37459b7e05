# SPDX-License-Identifier: MIT
"""Run a mixture-of-experts layer over several ranks as for inference, and check each step.

    torchrun --nproc-per-node 2 examples/moe/infer.py
    MORI_SHMEM_DEVICE=gpu torchrun --nproc-per-node 2 examples/moe/infer.py

Each step is compared with the same layer in one process. No shape depends on data, and nothing
waits for the GPU: the experts process the largest possible number of rows, and the received number
stays on the device. So one step can be captured into a CUDA graph, which all ranks replay. Experts
write their rows where combine reads them.
"""

from __future__ import annotations

import argparse

import torch
from layer import Alone, Experts, Gate, Shape, start, stop, tokens_of

from mori.ops import EpDispatchCombineOp


class Inference:
    """The layer of one rank, for a fixed number of tokens at a time."""

    def __init__(self, shape: Shape, op: EpDispatchCombineOp, rank: int, ranks: int, where: torch.device) -> None:
        self.op, self.hidden = op, shape.hidden
        self.gate = Gate(shape, ranks * shape.experts).to(where)
        self.experts = Experts(shape, rank * shape.experts, shape.experts).to(where)
        self.places = torch.arange(op.max_num_tokens_to_recv(), device=where)[:, None]

    @torch.no_grad()
    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        weights, experts = self.gate(tokens)
        rows, row_weights, _, row_experts, total = self.op.dispatch(tokens, weights.contiguous(), None, experts)
        came = self.places < total  # rows beyond total are undefined
        rows, row_experts = torch.where(came, rows, 0), torch.where(came, row_experts, -1)
        made = self.experts(rows, torch.where(came, row_weights, 0), row_experts)
        where = self.op.get_registered_combine_input_buffer(torch.float32, self.hidden)
        where.copy_(made)
        out, _ = self.op.combine(where, None, experts, use_external_inp_buf=0)
        return out[: len(tokens)]


def captured(layer: Inference, tokens: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Capture one step; return the graph and the tensor that holds its result."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        layer(tokens)  # the first call loads kernels, which is not allowed during capture
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer(tokens)
    return graph, out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    shape = Shape()
    rank, ranks, op, where = start(shape)
    layer, alone = Inference(shape, op, rank, ranks, where), Alone(shape, ranks).to(where)
    tokens = tokens_of(shape, rank, 0).to(where)
    graph, out = captured(layer, tokens) if where.type == "cuda" else (None, None)
    for step in range(args.steps):
        tokens.copy_(tokens_of(shape, rank, step))
        if graph is None:
            out = layer(tokens)
        else:
            graph.replay()
        with torch.no_grad():
            wanted = alone(tokens)
        assert out is not None
        torch.testing.assert_close(out, wanted, rtol=1e-3, atol=1e-4)
        op.check()
    how = "eagerly" if graph is None else "by a graph"
    del graph
    stop(op)
    print(f"rank {rank} of {ranks}: {args.steps} steps {how}, as in one process")


if __name__ == "__main__":
    main()
