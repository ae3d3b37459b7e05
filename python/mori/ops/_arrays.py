# SPDX-License-Identifier: MIT
"""The kinds of arrays that an op takes and returns.

* On the CPU: torch tensors and numpy arrays.
* On a GPU: torch tensors, and arrays with ``__cuda_array_interface__``. For the latter an op
  returns :class:`mori.tensor_utils.GpuTensorView`.

Neither framework is imported here, because a caller that passes an array has loaded its framework.
numpy's bfloat16 and float8 types come from ml_dtypes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Literal

from .. import device
from .._errors import InvalidArgumentError, UnsupportedError
from ..tensor_utils import GpuTensorView, dtype_name, dtype_size, from_host_ptr, gpu_tensor_view

# gpu_torch and gpu are arrays on a GPU.
Kind = Literal["torch", "numpy", "gpu_torch", "gpu"]

HOST = -1  # in place of a GPU number: host memory

# Caches by type and by dtype, so that a call needs only two lookups for each array.
_kinds: dict[type, Kind] = {}
_names: dict[Any, str] = {}


def kind_of(array: Any, what: str, place: int = HOST) -> Kind:
    """Return the kind of ``array``.

    Raises TypeError if it is no supported array, UnsupportedError if it is not on ``place``.
    """
    kind = _kinds.get(type(array)) or _find_kind(array, what)
    if kind == "torch":
        if array.is_cpu:
            found = HOST
        elif array.is_cuda:
            kind, found = "gpu_torch", array.device.index
        else:
            raise UnsupportedError(_misplaced(what, str(array.device), place))
    elif kind == "numpy":
        found = HOST
    else:
        found = getattr(array, "device_id", HOST)
        if found != place or found == HOST:
            found = device.lookup(_pointer(array)).ordinal
    if found != place:
        raise UnsupportedError(_misplaced(what, "host memory" if found == HOST else f"GPU {found}", place))
    return kind


def _misplaced(what: str, found: str, place: int) -> str:
    wants = "host memory" if place == HOST else f"GPU {place}"
    advice = (
        "pass arrays on the CPU, or put the symmetric heap on a GPU (MORI_SHMEM_DEVICE=gpu)"
        if place == HOST
        else "pass arrays there, or put ops in host memory (MORI_EP_DEVICE=host)"
    )
    return f"{what} is on {found}, and this op's buffers are on {wants}: {advice}"


def _pointer(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def _find_kind(array: Any, what: str) -> Kind:
    kinds: tuple[tuple[Kind, str], ...] = (("numpy", "ndarray"), ("torch", "Tensor"))
    for kind, name in kinds:
        module = sys.modules.get(kind)
        if module is not None and isinstance(array, getattr(module, name)):
            _kinds[type(array)] = kind
            return kind
    if hasattr(array, "__cuda_array_interface__") and hasattr(array, "shape") and hasattr(array, "dtype"):
        _kinds[type(array)] = "gpu"
        return "gpu"
    raise TypeError(
        f"{what} is {type(array).__name__}, want a torch tensor, a numpy array or, on a GPU, an array of"
        " __cuda_array_interface__ with shape and dtype"
    )


def name_of(dtype: Any) -> str:
    """Return the bare name of an element type, as in :data:`mori.tensor_utils.DTYPE_TO_INT`."""
    name = _names.get(dtype)
    if name is None:
        numpy = sys.modules.get("numpy")
        known = numpy is not None and isinstance(dtype, type) and issubclass(dtype, numpy.generic)
        name = _names[dtype] = dtype_name(numpy.dtype(dtype) if known and numpy is not None else dtype)
    return name


def kind_of_dtype(dtype: Any, place: int = HOST) -> Kind | None:
    """Return the kind that has this element type; None for a bare name, which fits any kind."""
    if isinstance(dtype, str) or dtype is None:
        return None
    of_torch = type(dtype).__module__.partition(".")[0] == "torch"
    if place != HOST:
        return "gpu_torch" if of_torch else "gpu"
    return "torch" if of_torch else "numpy"


def check(array: Any, what: str, shape: tuple[int, int], name: str, place: int = HOST) -> Any:
    """Return ``array`` if it has this shape and element type; raise otherwise."""
    kind_of(array, what, place)
    if array.shape != shape:
        raise InvalidArgumentError(f"{what} has the shape {tuple(array.shape)}, want {shape}")
    if name_of(array.dtype) != name:
        raise InvalidArgumentError(f"{what} has the dtype {name_of(array.dtype)}, want {name}")
    return array


def matrix(array: Any, what: str) -> tuple[int, int]:
    """Return the shape of a two-dimensional array; raise if it has other dimensions."""
    shape = array.shape
    if len(shape) != 2:
        raise InvalidArgumentError(f"{what} has the shape {tuple(shape)}, want two dimensions")
    return shape[0], shape[1]


def view(kind: Kind, address: int, shape: Sequence[int], dtype: Any, owner: object) -> Any:
    """Return the memory at ``address`` as an array of ``kind`` that keeps ``owner`` alive."""
    if kind == "gpu" or kind == "gpu_torch":
        return _gpu_view(kind, address, tuple(shape), name_of(dtype), owner)
    return from_host_ptr(address, shape, name_of(dtype), kind, owner)


def _gpu_view(kind: Kind, address: int, shape: tuple[int, ...], name: str, owner: object) -> Any:
    gpu = device.lookup(address).ordinal
    if kind == "gpu":
        whole: Any = gpu_tensor_view(address, shape, name, gpu)
        whole.owner = owner
        return whole
    import torch

    flat: Any = gpu_tensor_view(address, (math.prod(shape) * dtype_size(name),), "uint8", gpu)
    flat.owner = owner  # torch keeps a reference to the object that it was given
    return torch.as_tensor(flat, device=f"cuda:{gpu}").view(getattr(torch, name)).reshape(shape)


def empty(kind: Kind, shape: Sequence[int], dtype: Any, place: int = HOST) -> Any:
    """Return a new, uninitialised array."""
    if kind == "gpu":
        memory = device.DeviceMemory(max(1, math.prod(shape) * item_size(dtype)), device=place)
        return _gpu_view(kind, memory.ptr, tuple(shape), name_of(dtype), memory)
    if kind == "gpu_torch":
        import torch

        return torch.empty(tuple(shape), dtype=getattr(torch, name_of(dtype)), device=f"cuda:{place}")
    if kind == "torch":
        import torch

        return torch.empty(tuple(shape), dtype=getattr(torch, name_of(dtype)))
    import numpy as np

    from ..tensor_utils import numpy_dtype

    return np.empty(tuple(shape), numpy_dtype(name_of(dtype)))


def copy(kind: Kind, array: Any, n: int, stream: int = 0) -> Any:
    """Return a copy of the first ``n`` elements of a flat array, queued on ``stream`` on a GPU."""
    if kind != "gpu":
        return array[:n].copy() if kind == "numpy" else array[:n].clone()
    mine = empty(kind, (n,), array.dtype, array.device_id)
    queue = device.Stream.borrow(stream, array.device_id)
    device.copy(mine.ptr, array.ptr, mine.nbytes, stream=queue)
    queue.wait()  # no caching allocator here would keep the memory alive until the stream is done
    return mine


def address(kind: Kind, array: Any) -> int:
    """Return the address of the elements."""
    if kind == "gpu":
        return _pointer(array)
    return int(array.ctypes.data if kind == "numpy" else array.data_ptr())


def contiguous(kind: Kind, array: Any) -> bool:
    """Report whether the array is contiguous."""
    if kind == "gpu":
        return array.__cuda_array_interface__.get("strides") is None
    return bool(array.flags.c_contiguous if kind == "numpy" else array.is_contiguous())


def operand(kind: Kind, array: Any, what: str) -> Any:
    """Return an array as native calls take it: on a GPU, its address."""
    if array is None or kind == "numpy" or kind == "torch":
        return array
    if not contiguous(kind, array):
        raise InvalidArgumentError(f"{what} must be contiguous")
    return address(kind, array)


def device_address(array: Any, what: str) -> int:
    """Return the address of a GPU array that passed :func:`kind_of`; raise if not contiguous."""
    if type(array) is GpuTensorView:  # it has no strides
        return array.ptr
    if hasattr(array, "data_ptr"):
        found, is_whole = int(array.data_ptr()), bool(array.is_contiguous())
    else:
        told = array.__cuda_array_interface__
        found, is_whole = int(told["data"][0]), told.get("strides") is None
    if not is_whole:
        raise InvalidArgumentError(f"{what} must be contiguous")
    return found


def item_size(dtype: Any) -> int:
    """Return the size of an element in bytes."""
    return dtype_size(name_of(dtype))
