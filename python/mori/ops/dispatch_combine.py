# SPDX-License-Identifier: MIT
"""Everything in mori.ops, and names that only some programs need.

``TOPK_IDX_DTYPE`` is torch's type of expert numbers, torch.int32. Accessing it imports torch.
"""

from __future__ import annotations

from typing import Any

from ._config import EpDispatchCombineConfig as EpDispatchCombineConfig
from ._count import launch_local_expert_count as launch_local_expert_count
from ._enums import _QUANT_TYPE_MAP as _QUANT_TYPE_MAP
from ._enums import EpDispatchCombineKernelType as EpDispatchCombineKernelType
from ._enums import EpDispatchCombineQuantType as EpDispatchCombineQuantType
from ._enums import _normalize_quant_type as _normalize_quant_type
from ._op import EpDispatchCombineOp as EpDispatchCombineOp
from ._routing import EpDispatchRoutingHandle as EpDispatchRoutingHandle


def warmup_jit_kernels(kernel_type: EpDispatchCombineKernelType) -> None:
    """Do nothing: no kernel is compiled at first use."""
    EpDispatchCombineKernelType(kernel_type)


def __getattr__(name: str) -> Any:
    if name != "TOPK_IDX_DTYPE":
        raise AttributeError(f"module 'mori.ops.dispatch_combine' has no attribute {name!r}")
    import torch

    return torch.int32


def __dir__() -> list[str]:
    return sorted({*globals(), "TOPK_IDX_DTYPE"})
