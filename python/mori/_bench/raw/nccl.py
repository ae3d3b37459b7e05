# SPDX-License-Identifier: MIT
"""NCCL's all_to_all by torch.distributed, the yardstick of dispatch and combine."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from mori import device
from mori.tensor_utils import gpu_tensor_view

_TIMEOUT = timedelta(seconds=60)


def why_no_cuda() -> str:
    """Return why torch has no GPU here, empty if it has one."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    if any("emulated" in info.name.lower() for info in device.devices()):
        return "the GPU is emulated"
    import torch

    return "" if torch.cuda.is_available() else "torch sees no GPU"


class AllToAll:
    """A rank of NCCL. Raises what torch.distributed raises."""

    def __init__(self, store: str, rank: int, size: int, gpu: int) -> None:
        import torch
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_nccl_available():
            raise RuntimeError("this torch has no NCCL")
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast: all_to_all has no use for it
        self._gpu = gpu
        torch.cuda.set_device(gpu)
        where = f"file://{store}"
        dist.init_process_group("nccl", init_method=where, rank=rank, world_size=size, timeout=_TIMEOUT)
        warm = torch.zeros(size, device=f"cuda:{gpu}")
        dist.all_to_all_single(torch.empty_like(warm), warm)
        torch.cuda.synchronize(gpu)

    def work(
        self, pool: device.DeviceMemory, sent: list[int], came: list[int], row: int, calls: int, stream: Any
    ) -> Callable[[], None]:
        """Return a function that queues `calls` all_to_all calls, each of other rows of the pool.
        """
        import torch
        import torch.distributed as dist

        flat: Any = gpu_tensor_view(pool.ptr, (pool.nbytes,), "uint8", self._gpu)
        flat.owner = pool
        whole = torch.as_tensor(flat, device=f"cuda:{self._gpu}")
        total = max(1, sum(sent)) * row
        places = max(1, pool.nbytes // total)
        out = torch.empty(sum(came) * row, dtype=torch.uint8, device=whole.device)
        splits = [n * row for n in came], [n * row for n in sent]

        def queue() -> None:
            with torch.cuda.stream(stream):
                for i in range(calls):
                    first = i % places * total
                    dist.all_to_all_single(out, whole[first : first + sum(sent) * row], *splits)

        queue()
        stream.synchronize()
        return queue

    def close(self) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()
