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
    """Return where the elements of a torch tensor lie, or those of any array with ``__cuda_array_interface__``.

    Such arrays are cupy's, numba's, ``mori.device.DeviceMemory``, :class:`GpuTensorView`; the driver says which GPU
    they are of. Neither this nor registering the span waits for work on the tensor. The caller keeps the object alive
    while the range is in use: nothing here holds it.

    Raises:
        TypeError: the object is neither.
        RuntimeError: the tensor is not contiguous, so that no single range holds it.
        KeyError: it lies neither on a CPU nor on a CUDA or ROCm device.
        ValueError: no driver of this process knows the array's address.
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
    # An empty array may have no address.
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
        device_id: the GPU's number, as the framework counts; None means the one whose memory it is.

    Raises:
        ValueError: unknown framework or dtype, or the memory is not of that GPU, or of none.
        ImportError: the framework is not installed.
    """
    if framework == "torch":
        return _torch_array(ptr, shape, dtype, _gpu_of(ptr, device_id))
    if framework == "jax":
        return _jax_array(ptr, shape, dtype, _gpu_of(ptr, device_id))
    raise ValueError(f"unknown framework {framework!r}; supported are 'torch' and 'jax'")


def _gpu_of(ptr: int, device_id: int | None) -> int:
    """Return the GPU whose memory is at ``ptr``. Frameworks would copy for another one."""
    known = _lookup(ptr)
    if device_id is not None and device_id != known.ordinal:
        raise ValueError(f"{ptr:#x} is memory of GPU {known.ordinal}, not of GPU {device_id}")
    return known.ordinal


def _lookup(ptr: int) -> device.Pointer:
    """Return what the drivers know about an address that a GPU reaches; ValueError if they do not."""
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
