# SPDX-License-Identifier: MIT
"""Tensors and buffers as addresses, and addresses as tensors. No framework is imported until one is asked for.

From an object to what ``register_memory`` takes: :func:`tensor_span`, :func:`buffer_span`. From a GPU address to an
array that torch, jax or any DLPack consumer takes without a copy: :func:`from_gpu_ptr`, :func:`gpu_tensor_view`. From
an address in host memory to a torch tensor or a numpy array: :func:`from_host_ptr`.

Nothing here owns memory. A span is valid while its object lives; a view is valid while the memory behind it is.
"""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ._gpu_view import GpuTensorView as GpuTensorView
from .io._enums import MemoryLocationType

DTYPE_TO_INT: dict[str, int] = {
    "float32": 0,
    "bfloat16": 1,
    "float8_e4m3fn": 2,
    "float8_e4m3fnuz": 3,
    "int32": 4,
    "float4_e2m1fn_x2": 5,
}
"""The number by which native code knows each element type."""

# Bytes of one element, by the name that torch, numpy and jax share. float4_e2m1fn_x2 packs two values in its byte.
_ITEM_SIZE: dict[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


class Span(NamedTuple):
    """A range of memory, in the order of ``IOEngine.register_memory``: ``engine.register_memory(*span)``."""

    ptr: int
    size: int
    device_id: int
    mem_loc: MemoryLocationType


def dtype_name(dtype: Any) -> str:
    """Return the bare name of a torch, numpy or jax element type: ``torch.bfloat16`` gives ``"bfloat16"``."""
    if isinstance(dtype, str):
        return dtype.rpartition(".")[2]
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(name).rpartition(".")[2]


def dtype_size(dtype: Any) -> int:
    """Return the bytes of one element; ValueError for a type without a fixed size here."""
    name = dtype_name(dtype)
    if name not in _ITEM_SIZE:
        raise ValueError(f"unsupported dtype {dtype!r}; known are {', '.join(_ITEM_SIZE)}")
    return _ITEM_SIZE[name]


def dtype_to_int(dtype: Any) -> int:
    """Return the number by which native code knows ``dtype``; ValueError if it does not."""
    name = dtype_name(dtype)
    if name not in DTYPE_TO_INT:
        raise ValueError(f"unsupported dtype {dtype!r}; supported are {', '.join(DTYPE_TO_INT)}")
    return DTYPE_TO_INT[name]


def tensor_span(tensor: Any) -> Span:
    """Return where a torch tensor's elements lie.

    Raises:
        RuntimeError: the tensor is not contiguous, so that no single range holds it.
        KeyError: it lies neither on a CPU nor on a CUDA or ROCm device.
    """
    if not tensor.is_contiguous():
        raise RuntimeError("input tensor must be contiguous")
    loc = {"cpu": MemoryLocationType.CPU, "cuda": MemoryLocationType.GPU}[tensor.device.type]
    index = tensor.device.index
    return Span(tensor.data_ptr(), tensor.nelement() * tensor.element_size(), -1 if index is None else index, loc)


def buffer_span(buffer: Any) -> Span:
    """Return where a buffer lies: bytearray, mmap, array, numpy array, shared memory; read-only ones too.

    The caller keeps the object alive and does not resize it while the range is in use: nothing here holds it.

    Raises:
        TypeError: the object is no buffer.
        ValueError: its bytes are not contiguous.
    """
    from ._buffer import buffer_address

    with memoryview(buffer) as view:
        if not view.c_contiguous:
            raise ValueError("buffer must be contiguous")
        return Span(buffer_address(view), view.nbytes, -1, MemoryLocationType.CPU)


def gpu_tensor_view(ptr: int, shape: Sequence[int], dtype: Any, device_id: int = 0) -> GpuTensorView:
    """Return GPU memory at ``ptr`` as an array of ``shape`` and ``dtype`` on GPU ``device_id``, without copying.

    The view speaks DLPack and ``__cuda_array_interface__``. Element types without a number in those protocols
    (bfloat16, float8, float4) come as ``uint8`` with the last dimension counted in bytes.
    """
    return GpuTensorView(int(ptr), tuple(int(n) for n in shape), dtype_name(dtype), dtype_size(dtype), int(device_id))


def from_gpu_ptr(
    ptr: int,
    shape: Sequence[int],
    dtype: Any,
    framework: Literal["torch", "jax"] = "torch",
    device_id: int | None = None,
) -> Any:
    """Return a torch or jax array over GPU memory at ``ptr``, without copying.

    Args:
        ptr: address on the GPU.
        shape: extent of each dimension, in elements.
        dtype: the framework's element type, or its name.
        framework: which kind of array to make.
        device_id: the GPU; None means the framework's current one.

    Raises:
        ValueError: unknown framework or dtype.
        ImportError: the framework is not installed.
    """
    if framework == "torch":
        return _torch_array(ptr, shape, dtype, device_id)
    if framework == "jax":
        return _jax_array(ptr, shape, dtype, device_id)
    raise ValueError(f"unknown framework {framework!r}; supported are 'torch' and 'jax'")


def from_host_ptr(
    ptr: int,
    shape: Sequence[int],
    dtype: Any,
    framework: Literal["torch", "numpy"] = "torch",
    owner: object = None,
) -> Any:
    """Return a torch tensor on the CPU, or a numpy array, over host memory at ``ptr``, without copying.

    It owns nothing: using it after the memory is gone ends the process.

    Args:
        ptr: address in this process.
        shape: extent of each dimension, in elements.
        dtype: the framework's element type, or its name. numpy has bfloat16 and float8 by ml_dtypes.
        framework: which kind of array to make.
        owner: what keeps the memory; the array, and views of it, hold on to it.

    Raises:
        ValueError: unknown framework or dtype, or no address.
        ImportError: the framework, or ml_dtypes, is not installed.
    """
    if framework not in ("torch", "numpy"):
        raise ValueError(f"unknown framework {framework!r}; supported are 'torch' and 'numpy'")
    extents = tuple(int(n) for n in shape)
    count = math.prod(extents) * dtype_size(dtype)
    if any(n < 0 for n in extents) or ptr < 0 or (ptr == 0 and count > 0):
        raise ValueError(f"not an array in memory: ptr {ptr:#x}, shape {extents}")
    memory: Any = (ctypes.c_uint8 * count).from_address(ptr)
    memory.owner = owner
    return (_torch_host_array if framework == "torch" else _numpy_array)(memory, extents, dtype)


def _torch_host_array(memory: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    import torch

    target = getattr(torch, dtype_name(dtype))
    if len(memory) == 0:
        return torch.empty(shape, dtype=target)
    return torch.frombuffer(memory, dtype=torch.uint8).view(target).reshape(shape)


def _numpy_array(memory: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    import numpy as np

    return np.frombuffer(memory, np.uint8).view(numpy_dtype(dtype)).reshape(shape)


def numpy_dtype(dtype: Any) -> Any:
    """Return numpy's element type of the same name; those that numpy lacks come from ml_dtypes."""
    import numpy as np

    name = dtype_name(dtype)
    try:
        return np.dtype(name)
    except TypeError:
        ml_dtypes: Any = importlib.import_module("ml_dtypes")
    if not hasattr(ml_dtypes, name):
        raise ValueError(f"unsupported dtype {dtype!r}: neither numpy nor ml_dtypes has it")
    return np.dtype(getattr(ml_dtypes, name))


def _torch_array(ptr: int, shape: Sequence[int], dtype: Any, device_id: int | None) -> Any:
    import torch

    device = torch.cuda.current_device() if device_id is None else device_id
    target = getattr(torch, dtype_name(dtype))
    count = math.prod(shape) * dtype_size(dtype)
    flat = torch.as_tensor(gpu_tensor_view(ptr, (count,), "uint8", device), device=f"cuda:{device}")
    return flat.view(target).reshape(tuple(shape))


def _jax_array(ptr: int, shape: Sequence[int], dtype: Any, device_id: int | None) -> Any:
    jax: Any = importlib.import_module("jax")

    count = math.prod(shape) * dtype_size(dtype)
    flat = jax.dlpack.from_dlpack(gpu_tensor_view(ptr, (count,), "uint8", device_id or 0))
    item = dtype_size(dtype)
    grouped = flat if item == 1 else flat.reshape(-1, item)
    return jax.lax.bitcast_convert_type(grouped, dtype_name(dtype)).reshape(tuple(shape))
