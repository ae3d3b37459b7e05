# SPDX-License-Identifier: MIT
"""The functions of mori.cpp on ops. They take the op where the native library takes a handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from .._errors import UnsupportedError

if TYPE_CHECKING:  # avoids an import cycle: mori.ops imports mori.shmem, which imports mori.cpp
    from ._op import EpDispatchCombineOp


def get_cur_rank_num_token(op: EpDispatchCombineOp) -> int:
    """Return the number of tokens in this rank's last dispatch; 0 before the first."""
    return max(0, op._tokens)


def get_dispatch_output_ptrs(op: EpDispatchCombineOp) -> tuple[int, int, int, int, int]:
    """Return the addresses of dispatch's results: rows, weights, scales, indices, row count."""
    where = op._buffers.where
    return (
        where["dispatch_out"],
        where["dispatch_out_weights"],
        where["dispatch_out_scales"] if op.config.scale_dim else 0,
        where["dispatch_out_indices"],
        where["received"],
    )


def get_combine_output_ptrs(op: EpDispatchCombineOp) -> tuple[int, int]:
    """Return the addresses of combine's results: sums, sums of weights."""
    return op._buffers.where["combine_out"], op._buffers.where["combine_out_weights"]


def get_handle_info(op: EpDispatchCombineOp) -> dict[str, Any]:
    """Return the op's configuration and the addresses of its arrays."""
    return {
        "rank": op.config.rank,
        "world_size": op.config.world_size,
        "kernel_type": op.config.kernel_type,
        **op._buffers.where,
    }


def launch_reset(op: EpDispatchCombineOp, stream: Any = 0) -> None:
    """Do nothing, like ``op.reset()``."""
    op.reset()


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(f"{name} builds the arguments of a GPU kernel, which mori.ops launches itself")


def prepare_inference_args(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UnsupportedError: kernels take other arguments in this implementation."""
    _refuse("prepare_inference_args")


def build_args(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UnsupportedError: kernels take other arguments in this implementation."""
    _refuse("build_args")


def build_args_with_routing(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UnsupportedError: kernels take other arguments in this implementation."""
    _refuse("build_args_with_routing")
