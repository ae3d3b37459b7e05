# SPDX-License-Identifier: MIT
"""Conversion of tensors and buffers to addresses, and of addresses to tensors, without copying.

* :func:`tensor_span` and :func:`buffer_span` return the arguments of ``register_memory`` for an
  object.
* :func:`from_gpu_ptr` and :func:`gpu_tensor_view` make an array over GPU memory for torch, jax or
  any DLPack consumer.
* :func:`from_host_ptr` makes a torch tensor or numpy array over host memory.

A framework is imported only when a call asks for it. Nothing here owns memory: a span is valid
while its object lives, a view while the memory behind it is valid.
"""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from . import device
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
"""The number that native code uses for each element type."""

# Bytes of one element, by the type name that torch, numpy and jax share. One byte of
# float4_e2m1fn_x2 holds two values.
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
    """Return the size of one element in bytes; raise ValueError if the type is unknown."""
    name = dtype_name(dtype)
    if name not in _ITEM_SIZE:
        raise ValueError(f"unsupported dtype {dtype!r}; known are {', '.join(_ITEM_SIZE)}")
    return _ITEM_SIZE[name]


def dtype_to_int(dtype: Any) -> int:
    """Return the number that native code uses for ``dtype``; raise ValueError if it has none."""
    name = dtype_name(dtype)
    if name not in DTYPE_TO_INT:
        raise ValueError(f"unsupported dtype {dtype!r}; supported are {', '.join(DTYPE_TO_INT)}")
    return DTYPE_TO_INT[name]


def tensor_span(tensor: Any) -> Span:
    """Return the memory range of a torch tensor, or of any array with ``__cuda_array_interface__``.

    Such arrays come from cupy and numba, or are a ``mori.device.DeviceMemory`` or
    :class:`GpuTensorView`. The GPU driver says which GPU holds them. Neither this call nor
    registering the span waits for queued work on the tensor. The span holds no reference: the
    caller keeps the object alive while the range is in use.

    Raises:
        TypeError: the object is neither.
        RuntimeError: the tensor is not contiguous, so it is not one range.
        KeyError: the tensor is neither on a CPU nor on a CUDA or ROCm device.
        ValueError: no GPU driver in this process knows the array's address.
    """
    if hasattr(tensor, "is_contiguous") and hasattr(tensor, "data_ptr"):
        return _torch_span(tensor)
    if hasattr(tensor, "__cuda_array_interface__"):
        return _array_span(tensor.__cuda_array_interface__)
    hint = "; buffer_span takes it" if _is_buffer(tensor) else ""
    raise TypeError(f"tensor must be torch's or have __cuda_array_interface__, got {type(tensor).__name__}{hint}")


def _torch_span(tensor: Any) -> Span:
    if not tensor.is_contiguous():
        raise RuntimeError("input tensor must be contiguous")
    kind, index = tensor.device.type, tensor.device.index
    locations = {"cpu": MemoryLocationType.CPU, "cuda": MemoryLocationType.GPU}
    if kind not in locations:
        raise KeyError(f"tensor is on {kind!r}; supported are {', '.join(locations)}")
    size = tensor.nelement() * tensor.element_size()
    return Span(tensor.data_ptr(), size, -1 if index is None else index, locations[kind])


def _array_span(interface: dict[str, Any]) -> Span:
    shape, strides, (ptr, _read_only) = interface["shape"], interface.get("strides"), interface["data"]
    item = int(interface["typestr"][2:])
    size = math.prod(shape) * item
    if interface.get("mask") is not None:
        raise RuntimeError("input array must have no mask")
    if strides is not None and size and not _c_contiguous(shape, strides, item):
        raise RuntimeError("input array must be contiguous")
    # The address of an empty array may be 0.
    if ptr == 0 and size == 0:
        return Span(0, 0, -1, MemoryLocationType.GPU)
    known = _lookup(ptr)
    if known.kind == "pinned host":
        return Span(ptr, size, -1, MemoryLocationType.CPU)
    return Span(ptr, size, known.ordinal, MemoryLocationType.GPU)


def _c_contiguous(shape: Sequence[int], strides: Sequence[int], item: int) -> bool:
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _is_buffer(value: Any) -> bool:
    try:
        with memoryview(value):
            return True
    except TypeError:
        return False


def buffer_span(buffer: Any) -> Span:
    """Return the memory range of a bytearray, mmap, array, numpy array or shared memory.

    The buffer may be read-only. The span holds no reference: the caller keeps the object alive and
    does not resize it while the range is in use.

    Raises:
        TypeError: the object does not support the buffer protocol.
        ValueError: its bytes are not contiguous.
    """
    from ._buffer import buffer_address

    with memoryview(buffer) as view:
        if not view.c_contiguous:
            raise ValueError("buffer must be contiguous")
        return Span(buffer_address(view), view.nbytes, -1, MemoryLocationType.CPU)


def gpu_tensor_view(ptr: int, shape: Sequence[int], dtype: Any, device_id: int = 0) -> GpuTensorView:
    """Return an array over GPU memory at ``ptr``, without copying.

    The view supports DLPack and ``__cuda_array_interface__``. Element types that these protocols
    lack (bfloat16, float8, float4) appear as ``uint8``, with the last dimension counted in bytes.
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
        device_id: GPU number as the framework counts; None means the GPU that holds the memory.

    Raises:
        ValueError: the framework or dtype is unknown, or the memory is on another GPU or on none.
        ImportError: the framework is not installed.
    """
    if framework == "torch":
        return _torch_array(ptr, shape, dtype, _gpu_of(ptr, device_id))
    if framework == "jax":
        return _jax_array(ptr, shape, dtype, _gpu_of(ptr, device_id))
    raise ValueError(f"unknown framework {framework!r}; supported are 'torch' and 'jax'")


def _gpu_of(ptr: int, device_id: int | None) -> int:
    """Return the GPU that holds the memory at ``ptr``.

    If a framework is given another GPU, it copies the data there.
    """
    known = _lookup(ptr)
    if device_id is not None and device_id != known.ordinal:
        raise ValueError(f"{ptr:#x} is memory of GPU {known.ordinal}, not of GPU {device_id}")
    return known.ordinal


def _lookup(ptr: int) -> device.Pointer:
    """Return what the driver knows about a GPU address; raise ValueError if no driver knows it."""
    known = device.lookup(ptr)
    if known.ordinal < 0:
        why = device.why_no_device() or "the GPUs of this process do not know it"
        raise ValueError(f"{ptr:#x} is not an address in GPU memory: {why}")
    return known


def from_host_ptr(
    ptr: int,
    shape: Sequence[int],
    dtype: Any,
    framework: Literal["torch", "numpy"] = "torch",
    owner: object = None,
) -> Any:
    """Return a torch tensor on the CPU, or a numpy array, over host memory at ``ptr``, without copying.

    The array does not own the memory. Using the array after the memory is freed crashes the
    process.

    Args:
        ptr: address in this process.
        shape: extent of each dimension, in elements.
        dtype: the framework's element type, or its name. In numpy, bfloat16 and float8 need
            ml_dtypes.
        framework: which kind of array to make.
        owner: the object that keeps the memory alive; the array and its views hold a reference to
            it.

    Raises:
        ValueError: the framework or dtype is unknown, or ``ptr`` is not an address.
        ImportError: the framework or ml_dtypes is not installed.
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
    """Return numpy's element type of that name, from ml_dtypes if numpy itself lacks it."""
    import numpy as np

    name = dtype_name(dtype)
    try:
        return np.dtype(name)
    except TypeError:
        ml_dtypes: Any = importlib.import_module("ml_dtypes")
    if not hasattr(ml_dtypes, name):
        raise ValueError(f"unsupported dtype {dtype!r}: neither numpy nor ml_dtypes has it")
    return np.dtype(getattr(ml_dtypes, name))


def _torch_array(ptr: int, shape: Sequence[int], dtype: Any, gpu: int) -> Any:
    import torch

    target = getattr(torch, dtype_name(dtype))
    count = math.prod(shape) * dtype_size(dtype)
    flat = torch.as_tensor(gpu_tensor_view(ptr, (count,), "uint8", gpu), device=f"cuda:{gpu}")
    return flat.view(target).reshape(tuple(shape))


def _jax_array(ptr: int, shape: Sequence[int], dtype: Any, gpu: int) -> Any:
    jax: Any = importlib.import_module("jax")

    count = math.prod(shape) * dtype_size(dtype)
    flat = jax.dlpack.from_dlpack(gpu_tensor_view(ptr, (count,), "uint8", gpu))
    item = dtype_size(dtype)
    grouped = flat if item == 1 else flat.reshape(-1, item)
    return jax.lax.bitcast_convert_type(grouped, dtype_name(dtype)).reshape(tuple(shape))
