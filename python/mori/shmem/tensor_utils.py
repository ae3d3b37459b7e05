# SPDX-License-Identifier: MIT
"""Symmetric memory as torch tensors, or as numpy arrays if it is in host memory, without copies.

The symmetric heap owns the memory, not the tensor. The memory is valid until
:func:`mori_shmem_free_tensor` or ``shmem_finalize``. Do not use tensors and views of it after that:
the process could crash or read later data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from .._errors import InvalidArgumentError, UnsupportedError
from ..tensor_utils import dtype_size, from_gpu_ptr, from_host_ptr, gpu_tensor_view
from . import _native
from ._world import heap_device, initialized, shmem_free, shmem_malloc, shmem_mype, shmem_npes, shmem_ptr_p2p


class MoriShmemBuffer:
    """Symmetric memory as an array of bytes, for any library that takes ``__cuda_array_interface__``.

    Attributes: ``ptr``, ``nbytes``, ``dtype`` (the intended element type; the array itself has
    bytes).

    With the heap in host memory it has ``__array_interface__`` instead.
    """

    def __init__(self, ptr: int, nbytes: int, dtype: Any) -> None:
        self.ptr = ptr
        self.nbytes = nbytes
        self.dtype = dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not _on_gpu():
            raise AttributeError("the symmetric heap is in host memory: see __array_interface__")
        return self._interface()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if _on_gpu():
            raise AttributeError("the symmetric heap is on a GPU: see __cuda_array_interface__")
        return self._interface()

    def _interface(self) -> dict[str, Any]:
        return {
            "shape": (self.nbytes,),
            "typestr": "<u1",
            "data": (self.ptr, False),
            "strides": None,
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"<MoriShmemBuffer of {self.nbytes} bytes at {self.ptr:#x} for {self.dtype}>"


def _on_gpu() -> bool:
    return initialized() and heap_device() >= 0


def _check_dtype(dtype: Any) -> None:
    """Raise if ``dtype`` needs host memory and the heap is on a GPU, before allocating."""
    if _on_gpu() and type(dtype).__module__ != "torch":
        raise UnsupportedError(
            f"the symmetric heap is on a GPU, where numpy cannot create an array of {dtype!r}: give a torch dtype, wrap"
            " shmem_malloc's address in MoriShmemBuffer for other libraries, or set MORI_SHMEM_DEVICE=host before init"
        )


def _synchronize() -> None:
    """Wait for the work that torch has queued on the GPU, if the heap is on one."""
    if _on_gpu():
        import torch

        torch.cuda.synchronize(heap_device())


def _view(ptr: int, shape: Sequence[int], dtype: Any) -> Any:
    if _on_gpu():
        return from_gpu_ptr(ptr, shape, dtype, "torch", heap_device())
    if type(dtype).__module__ == "torch":
        return from_host_ptr(ptr, shape, dtype, "torch")
    from ._array import SymmetricArray

    return from_host_ptr(ptr, shape, dtype, "numpy").view(SymmetricArray)


def _peer_view(ptr: int, shape: Sequence[int], dtype: Any) -> Any:
    """Return a view of another PE's memory.

    On a GPU the view belongs to this PE's GPU, which has the memory mapped.
    """
    if not _on_gpu():
        return _view(ptr, shape, dtype)
    import torch

    count = math.prod(shape) * dtype_size(dtype)
    flat = torch.from_dlpack(gpu_tensor_view(ptr, (count,), "uint8", heap_device()))
    return flat.view(dtype).reshape(tuple(shape))


def mori_shmem_create_tensor(shape: Sequence[int], dtype: Any) -> Any:
    """Allocate a symmetric tensor on every PE. Collective.

    Args:
        shape: extent of each dimension.
        dtype: a torch dtype makes a torch tensor, on the GPU if the heap is there. A numpy dtype or
            a name makes a numpy array, which needs the heap in host memory.

    Returns:
        The tensor, with the attribute ``__symm_tensor__``. It is zero unless the memory was used before.

    Raises:
        AssertionError: nothing was allocated, and the log says why; or the tensor would have no
            elements.
        UnsupportedError: ``dtype`` asks for a numpy array and the heap is on a GPU.

    On a GPU it waits for the work that torch has queued there, before and after the allocation.
    """
    _check_dtype(dtype)
    extents = tuple(operator.index(n) for n in ([shape] if isinstance(shape, int) else shape))
    if any(n < 0 for n in extents):
        raise InvalidArgumentError(f"shape {extents} has a negative extent")
    _synchronize()
    ptr = shmem_malloc(math.prod(extents) * dtype_size(dtype))
    if ptr == 0:
        raise AssertionError(f"shmem_malloc returned no memory for shape {extents} of {dtype}")
    tensor = _view(ptr, extents, dtype)
    tensor.__symm_tensor__ = True
    _synchronize()
    return tensor


def _check(tensor: Any) -> int:
    """Return the address of a symmetric tensor; raise if it is not one."""
    if not getattr(tensor, "__symm_tensor__", False):
        raise AssertionError(f"not a tensor of mori_shmem_create_tensor: {type(tensor).__name__}")
    ptr: int = _native.hot.shmem_address(tensor)
    return ptr


def symm_mori_shmem_tensor(tensor: Any, peer: int) -> Any:
    """Return PE ``peer``'s copy of a symmetric tensor as a tensor that can be read and written here.

    For this PE it returns the same tensor. For others it returns a view without
    ``__symm_tensor__``.

    Raises:
        AssertionError: ``tensor`` is not from :func:`mori_shmem_create_tensor`.
        ValueError: the PE does not exist.
        UnsupportedError: the PE's memory is not mapped here; use shmem_get and shmem_put instead.
    """
    ptr, me = _check(tensor), shmem_mype()
    peer = operator.index(peer)
    if peer == me:
        return tensor
    if not 0 <= peer < shmem_npes():
        raise InvalidArgumentError(f"PE {peer} does not exist, want 0 to {shmem_npes() - 1}")
    there = shmem_ptr_p2p(ptr, me, peer)
    if there == 0:
        raise UnsupportedError(f"the memory of PE {peer} is not mapped in this process: use shmem_get and shmem_put")
    return _peer_view(there, tuple(tensor.shape), tensor.dtype)


def mori_shmem_free_tensor(tensor: Any) -> None:
    """Free a tensor from :func:`mori_shmem_create_tensor`. Collective. Its views become invalid."""
    ptr = _check(tensor)
    _synchronize()
    shmem_free(ptr)
    _synchronize()
    tensor.__symm_tensor__ = False


def mori_shmem_create_tensor_list_intra_node(shape: Sequence[int], dtype: Any, num_ranks: int) -> list[Any]:
    """Allocate a symmetric tensor; return its copies on PEs 0 to ``num_ranks - 1``. Collective."""
    tensor = mori_shmem_create_tensor(shape, dtype)
    return [symm_mori_shmem_tensor(tensor, pe) for pe in range(num_ranks)]
