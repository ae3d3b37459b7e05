# SPDX-License-Identifier: MIT
"""Launch settings. They are hints, which clients read even though host memory ignores them."""

from __future__ import annotations

import os
from typing import Any

from .._errors import InvalidArgumentError
from ._config import EpDispatchCombineConfig
from ._enums import EpDispatchCombineKernelType

MODE_VARIABLE = "MORI_EP_LAUNCH_CONFIG_MODE"
MODES = ("MANUAL", "AUTO")

# block_num, rdma_block_num, warp_per_block
Settings = tuple[int, int, int]
_AUTO: dict[EpDispatchCombineKernelType, Settings] = {
    EpDispatchCombineKernelType.InterNodeV1: (96, 64, 8),
    EpDispatchCombineKernelType.InterNodeV1LL: (256, 128, 8),
}
_AUTO_OTHERS: Settings = (128, 0, 16)
_INTRA_NODE_DISPATCH = (256, 16)


def mode() -> str:
    """Return the value of MORI_EP_LAUNCH_CONFIG_MODE; MANUAL if it is not set.

    Raises:
        ValueError: the value is neither MANUAL nor AUTO.
    """
    value = os.environ.get(MODE_VARIABLE, "MANUAL")
    if value not in MODES:
        raise InvalidArgumentError(f"invalid {MODE_VARIABLE} {value!r}; supported are {', '.join(MODES)}")
    return value


def automatic(kernel_type: EpDispatchCombineKernelType) -> Settings:
    """Return the launch settings of mode AUTO."""
    return _AUTO.get(kernel_type, _AUTO_OTHERS)


def settings(config: EpDispatchCombineConfig, is_auto: bool, is_dispatch: bool, given: Settings) -> Settings:
    """Return the settings of a launch: each given value above 0, else the mode's default."""
    if is_auto:
        base = automatic(config.kernel_type)
    elif is_dispatch and config.kernel_type == EpDispatchCombineKernelType.IntraNode:
        base = (_INTRA_NODE_DISPATCH[0], config.rdma_block_num, _INTRA_NODE_DISPATCH[1])
    else:
        base = (config.block_num, config.rdma_block_num, config.warp_num_per_block)
    block_num, rdma_block_num, warp_per_block = (g if g > 0 else b for g, b in zip(given, base, strict=True))
    return block_num, rdma_block_num, warp_per_block


def require_positive(config: Any, block_num: int, warp_per_block: int) -> None:
    """Raise if a GPU could not launch with these settings.

    Host memory ignores them, but a program that runs on host memory should also run on a GPU.
    """
    blocks = block_num if block_num > 0 else config.block_num
    warps = warp_per_block if warp_per_block > 0 else config.warp_num_per_block
    if blocks <= 0 or warps <= 0:
        raise RuntimeError(f"block_num {blocks} and warp_per_block {warps} must be positive")
