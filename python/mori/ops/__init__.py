# SPDX-License-Identifier: MIT
"""Expert parallelism: dispatch and combine of MoE layers across the PEs of mori.shmem.

Arrays are torch tensors on the CPU or numpy arrays. In each rank::

    import numpy as np
    import mori.shmem as shmem
    from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp

    shmem.shmem_init()
    me, ranks = shmem.shmem_mype(), shmem.shmem_npes()
    op = EpDispatchCombineOp(EpDispatchCombineConfig(
        np.float32, me, ranks, hidden_dim=8, scale_dim=0, scale_type_size=0, max_token_type_size=4,
        max_num_inp_token_per_rank=16, num_experts_per_rank=2, num_experts_per_token=2))
    tokens = np.ones((3, 8), np.float32)
    experts = np.array([[0, 1], [0, 2 * ranks - 1], [1, -1]], np.int32)
    rows, weights, scales, indices, total = op.dispatch(tokens, None, None, experts)
    out, _ = op.combine(rows, None, experts)  # a real program runs its experts on rows first
    shmem.shmem_finalize()

Importing this package starts nothing and imports neither torch nor numpy.
"""

from __future__ import annotations

import importlib
from typing import Any

from .._errors import ReceiveCapError as ReceiveCapError
from . import dispatch_combine as dispatch_combine
from ._config import EpDispatchCombineConfig as EpDispatchCombineConfig
from ._count import launch_local_expert_count as launch_local_expert_count
from ._enums import EpDispatchCombineKernelType as EpDispatchCombineKernelType
from ._op import EpDispatchCombineOp as EpDispatchCombineOp


def __getattr__(name: str) -> Any:
    if name == "dispatch_combine_v2":
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ImportError as err:
            raise AttributeError(str(err)) from None
    raise AttributeError(f"module 'mori.ops' has no attribute {name!r}")
