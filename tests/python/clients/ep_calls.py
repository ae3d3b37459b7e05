# SPDX-License-Identifier: MIT
"""The calls that vLLM, SGLang and rtp-llm make for expert parallelism, in their order; see test_ep.py.

Each runs in a rank of its own, with torch tensors on the CPU and torch process groups (gloo), and returns how far its
result is from what one process makes of the same tokens.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import torch
import torch.distributed as dist

import mori
import mori.ops
import mori.shmem
from mori.ops import EpDispatchCombineKernelType
from ranks import Rank

HIDDEN, EXPERTS, TOPK, TOKENS = 32, 4, 3, 24  # experts per rank; tokens of a rank at most
Tensor = torch.Tensor


def join(rank: Rank, size: int, store: str) -> None:
    """What the framework has done before it thinks of mori."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank.me, world_size=size)
    rank.size = size


def leave(rank: Rank) -> None:
    rank.kept.clear()
    mori.shmem.shmem_finalize()
    if dist.is_initialized():
        dist.destroy_process_group()


class Model:
    """A layer of small experts, the same in every process: expert e multiplies by its own matrix."""

    def __init__(self, ranks: int) -> None:
        generator = torch.Generator().manual_seed(7)
        self.experts = ranks * EXPERTS
        self.matrices = torch.randn(self.experts, HIDDEN, HIDDEN, generator=generator) / HIDDEN**0.5

    def route(self, rank: int, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens of a rank, their weights and their experts; every third time it has none."""
        generator = torch.Generator().manual_seed(1000 * step + rank)
        n = 0 if (rank + step) % 3 == 2 else 1 + (5 * rank + 7 * step) % TOKENS
        tokens = torch.randn(n, HIDDEN, generator=generator)
        scores = torch.rand(n, self.experts, generator=generator)
        weights, ids = torch.topk(scores, TOPK, dim=1)
        return tokens, weights.contiguous(), ids.to(torch.int32)

    def alone(self, tokens: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """What one process makes of them."""
        out = torch.zeros(tokens.shape)
        for k in range(TOPK):
            out += weights[:, k, None] * torch.bmm(tokens[:, None], self.matrices[ids[:, k].long()])[:, 0]
        return out

    def local(self, rank: int, tokens: Tensor, weights: Tensor, ids: Tensor, count: Tensor) -> Tensor:
        """What the experts of a rank make of the first ``count`` rows, weights applied, as the fused kernels do."""
        out = torch.zeros(tokens.shape)
        n = int(count[0])
        for row in range(n):
            for k in range(TOPK):
                if int(ids[row, k]) // EXPERTS == rank:
                    out[row] += weights[row, k] * (tokens[row].float() @ self.matrices[int(ids[row, k])])
        return out


def error(made: Tensor, wanted: Tensor) -> float:
    return float((made.float() - wanted).abs().max()) if len(wanted) else 0.0


class VllmManager:
    """MoriAll2AllManager."""

    def __init__(self, cpu_group: Any) -> None:
        assert importlib.util.find_spec("mori") is not None  # has_mori()
        torch._C._distributed_c10d._register_process_group("mori", cpu_group)
        mori.shmem.shmem_torch_process_group_init("mori")
        self.handles: dict[Any, Any] = {}

    def get_handle(self, kwargs: dict[str, Any]) -> Any:
        key = tuple(sorted(kwargs.items(), key=lambda item: item[0]))
        if key not in self.handles:
            self.handles[key] = mori.ops.EpDispatchCombineOp(mori.ops.EpDispatchCombineConfig(**kwargs))
        return self.handles[key]


class VllmLayer:
    """MoriPrepareAndFinalize: prepare is dispatch, finalize is combine."""

    def __init__(self, op: Any, quantised: bool) -> None:
        self.op, self.quantised = op, quantised

    def prepare(self, a1: Tensor, weights: Tensor, ids: Tensor) -> tuple[Any, ...]:
        scale = None
        if self.quantised:
            scale = a1.float().abs().amax(1, keepdim=True) / 448 + 1e-12
            a1 = (a1.float() / scale).to(torch.float8_e4m3fn)
        # Six positional arguments, the last of which lands in rdma_block_num.
        return self.op.dispatch(a1, weights, scale, ids, 80, 16)

    def finalize(self, output: Tensor, expert_out: Tensor, ids: Tensor) -> None:
        n = len(output)
        result = self.op.combine(expert_out, None, ids, 80, 16)[0]
        output.copy_(result[:n])


def vllm(rank: Rank, quantised: bool) -> float:
    """Two layers with the same shapes share an op. The largest error of any step."""
    group = dist.new_group(list(range(rank.size)), backend="gloo")
    manager = VllmManager(group)
    rank.kept["vllm"] = manager  # it lives as long as its worker
    model = Model(rank.size)
    kwargs = {
        "rank": rank.me,
        "world_size": rank.size,
        "data_type": torch.float8_e4m3fn if quantised else torch.bfloat16,
        "hidden_dim": HIDDEN,
        "scale_dim": 1 if quantised else 0,
        "scale_type_size": 4 if quantised else 0,
        "max_token_type_size": 2,
        "max_num_inp_token_per_rank": TOKENS,
        "num_experts_per_rank": EXPERTS,
        "num_experts_per_token": TOPK,
        "warp_num_per_block": 16,
        "block_num": 80,
        "kernel_type": EpDispatchCombineKernelType.IntraNode,
        "rdma_block_num": 0,
        "gpu_per_node": min(8, rank.size),
    }
    layers = [VllmLayer(manager.get_handle(dict(kwargs)), quantised) for _ in range(2)]
    assert layers[0].op is layers[1].op
    worst = 0.0
    for step in range(4):
        tokens, weights, ids = model.route(rank.me, step)
        for layer in layers:
            rows, row_weights, scale, row_ids, count = layer.prepare(tokens.bfloat16(), weights, ids)
            n = int(count[0])
            values = rows[:n].float() * scale[:n] if quantised else rows[:n].float()
            expert_out = torch.zeros(len(rows), HIDDEN, dtype=torch.bfloat16)
            expert_out[:n] = model.local(rank.me, values, row_weights, row_ids, count)
            output = torch.empty(len(tokens), HIDDEN, dtype=torch.bfloat16)
            layer.finalize(output, expert_out, ids)
            worst = max(worst, error(output, model.alone(tokens, weights, ids)))
    return worst


def sglang_op(rank: Rank, kernel: EpDispatchCombineKernelType, **changes: Any) -> Any:
    """As moriep.py makes it: arguments that this version's configuration lacks are dropped."""
    kwargs = {
        "rank": rank.me,
        "world_size": rank.size,
        "data_type": torch.bfloat16,
        "hidden_dim": HIDDEN,
        "scale_dim": 0,
        "scale_type_size": 0,
        "max_token_type_size": 4,
        "max_num_inp_token_per_rank": TOKENS,
        "num_experts_per_rank": EXPERTS,
        "num_experts_per_token": TOPK,
        "warp_num_per_block": 16,
        "block_num": 80,
        "max_total_recv_tokens": 0,
        "kernel_type": kernel,
        "gpu_per_node": rank.size,
        "rdma_block_num": 0,
        "num_qp_per_pe": 2,
        "use_external_inp_buf": True,
        "quant_type": "none",
        "of_a_later_version": 1,
        **changes,
    }
    known = {f.name for f in dataclasses.fields(mori.ops.EpDispatchCombineConfig)}
    config = mori.ops.EpDispatchCombineConfig(**{k: v for k, v in kwargs.items() if k in known})
    return mori.ops.EpDispatchCombineOp(config)


def sglang(rank: Rank, mode: str, quant_type: str) -> float:
    """MoriEPDispatcher: "normal", "sdma" or "low latency". The largest error of any step."""
    group = dist.new_group(list(range(rank.size)), backend="gloo")
    torch._C._distributed_c10d._register_process_group("mori", group)
    mori.shmem.shmem_torch_process_group_init("mori")
    kernel = EpDispatchCombineKernelType.IntraNode if mode == "normal" else EpDispatchCombineKernelType.AsyncLL
    op = sglang_op(rank, kernel, quant_type=quant_type)
    model = Model(rank.size)
    worst = 0.0
    for step in range(4):
        tokens, weights, ids = model.route(rank.me, step)
        x = tokens.bfloat16()
        if mode == "normal":
            received = op.dispatch(x, weights, None, ids, call_local_expert_count=True)
        else:
            assert op.config.kernel_type is EpDispatchCombineKernelType.AsyncLL
            received = op.dispatch_send(x, weights, None, ids, call_local_expert_count=True)
            op.dispatch_recv(call_local_expert_count=True)
        rows, row_weights, _, row_ids, count = received
        assert int(op.local_expert_count.sum()) == int((row_ids[: int(count[0])] // EXPERTS == rank.me).sum())
        y = model.local(rank.me, rows, row_weights, row_ids, count).bfloat16()
        if mode == "normal":
            result = op.combine(y, None, ids)[0]
        elif mode == "sdma":
            result = op.combine_send(y, None, ids)[0]
            op.combine_recv()
        else:
            kept = op.combine_send(y, None, ids)
            op.combine_recv()
            result = kept[0]
        worst = max(worst, error(result[: len(tokens)], model.alone(tokens, weights, ids)))
    return worst


def rtp_llm(rank: Rank) -> float:
    """All of the world as the group "default", and an op that may have a reset."""
    torch._C._distributed_c10d._register_process_group("default", dist.group.WORLD)
    mori.shmem.shmem_torch_process_group_init("default")
    config = mori.ops.EpDispatchCombineConfig(
        data_type=torch.float32, rank=rank.me, world_size=rank.size, hidden_dim=HIDDEN, scale_dim=0, scale_type_size=0,
        max_token_type_size=4, max_num_inp_token_per_rank=TOKENS, num_experts_per_rank=EXPERTS,
        num_experts_per_token=TOPK, warp_num_per_block=8, block_num=80, use_external_inp_buf=True,
        kernel_type=EpDispatchCombineKernelType.InterNodeV1, gpu_per_node=rank.size, rdma_block_num=32,
        num_qp_per_pe=1, quant_type="none",
    )  # fmt: skip
    op = mori.ops.EpDispatchCombineOp(config)
    model = Model(rank.size)
    worst = 0.0
    for step in range(3):
        tokens, weights, ids = model.route(rank.me, step)
        rows, row_weights, _, row_ids, count = op.dispatch(tokens, weights, None, ids)
        out, _ = op.combine(model.local(rank.me, rows, row_weights, row_ids, count), None, ids)
        worst = max(worst, error(out[: len(tokens)], model.alone(tokens, weights, ids)))
        if hasattr(op, "reset"):
            op.reset()
    return worst


def halves(rank: Rank) -> float:
    """Two groups of half the world each, as with data parallelism outside: each is a world of its own for mori."""
    half = rank.size // 2
    groups = [dist.new_group(list(range(first, first + half)), backend="gloo") for first in (0, half)]
    mine = groups[rank.me // half]
    torch._C._distributed_c10d._register_process_group("mori", mine)
    mori.shmem.shmem_torch_process_group_init("mori")
    here = Rank(dist.get_rank(mine), half)
    assert (mori.shmem.shmem_mype(), mori.shmem.shmem_npes()) == (here.me, half)
    op = sglang_op(here, EpDispatchCombineKernelType.IntraNode, data_type=torch.float32)
    model = Model(half)
    tokens, weights, ids = model.route(here.me, rank.me)
    rows, row_weights, _, row_ids, count = op.dispatch(tokens, weights, None, ids)
    out, _ = op.combine(model.local(here.me, rows, row_weights, row_ids, count), None, ids)
    return error(out[: len(tokens)], model.alone(tokens, weights, ids))
