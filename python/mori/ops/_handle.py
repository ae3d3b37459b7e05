# SPDX-License-Identifier: MIT
"""What mori.cpp says of an op. Where the native library takes the handle of one, these take the op itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from .._errors import UnsupportedError

if TYPE_CHECKING:  # mori.ops stands on mori.shmem, which shows mori.cpp
    from ._op import EpDispatchCombineOp


def get_cur_rank_num_token(op: EpDispatchCombineOp) -> int:
    """Return how many tokens the last dispatch of this rank had; 0 before the first."""
    return max(0, op._tokens)


def get_dispatch_output_ptrs(op: EpDispatchCombineOp) -> tuple[int, int, int, int, int]:
    """Return the addresses of what dispatch returns: rows, weights, scales, indices, number of rows."""
    where = op._buffers.where
    return (
        where["dispatch_out"],
        where["dispatch_out_weights"],
        where["dispatch_out_scales"] if op.config.scale_dim else 0,
        where["dispatch_out_indices"],
        where["received"],
    )


def get_combine_output_ptrs(op: EpDispatchCombineOp) -> tuple[int, int]:
    """Return the addresses of what combine returns: sums, sums of weights."""
    return op._buffers.where["combine_out"], op._buffers.where["combine_out_weights"]


def get_handle_info(op: EpDispatchCombineOp) -> dict[str, Any]:
    """Return what the op was made with, and where its arrays lie."""
    return {
        "rank": op.config.rank,
        "world_size": op.config.world_size,
        "kernel_type": op.config.kernel_type,
        **op._buffers.where,
    }


def launch_reset(op: EpDispatchCombineOp, stream: Any = 0) -> None:
    """Do what ``op.reset()`` does: nothing."""
    op.reset()


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(f"{name} builds the arguments of a GPU kernel, which mori.ops launches itself")


def prepare_inference_args(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UnsupportedError: kernels have arguments of their own here."""
    _refuse("prepare_inference_args")


def build_args(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UnsupportedError: kernels have arguments of their own here."""
    _refuse("build_args")


def build_args_with_routing(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UnsupportedError: kernels have arguments of their own here."""
    _refuse("build_args_with_routing")
