# SPDX-License-Identifier: MIT
"""The kinds of arrays that mori.ops takes.

numpy's, with the small floats of ml_dtypes, and torch's on the CPU; and on a GPU torch's, and views of
``mori.device`` memory.
"""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Kind = Literal["numpy", "torch", "gpu_torch", "gpu"]


class Place:
    """The GPU on which make() creates GPU arrays."""

    gpu = 0

# By the names of torch. numpy has no packed float4: its bytes stand for it.
DTYPES: dict[str, Any] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float4_e2m1fn_x2": np.dtype(np.uint8),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
}


def make(kind: Kind, array: Array | None, name: str | None = None) -> Any:
    """An array of numpy as one of ``kind`` with the same elements; ``name`` is their type where numpy has none."""
    if array is None or kind == "numpy":
        return array
    if kind == "gpu":
        return _on_gpu(array, name or array.dtype.name)
    import torch

    flat = torch.from_numpy(np.array(array, order="C").reshape(-1).view(np.uint8))
    shaped = flat.view(getattr(torch, name or array.dtype.name)).reshape(array.shape)
    return shaped if kind == "torch" else shaped.cuda(Place.gpu)


def _on_gpu(array: Array, name: str) -> Any:
    from mori.device import DeviceMemory
    from mori.tensor_utils import gpu_tensor_view

    memory = DeviceMemory(max(1, array.nbytes), device=Place.gpu)
    memory.write(np.array(array, order="C").tobytes())
    view: Any = gpu_tensor_view(memory.ptr, array.shape, name, Place.gpu)
    view.owner = memory
    return view


def fill(array: Any, rows: Any) -> None:
    """Copy an array into the first rows of another of the same kind."""
    if isinstance(array, np.ndarray) or hasattr(array, "data_ptr"):
        array[: len(rows)] = rows
        return
    from mori.device import copy

    if rows.nbytes:
        copy(array.ptr, rows.ptr, rows.nbytes)


def take(array: Any) -> Any:
    """Copy an array of any kind to numpy; None stays None."""
    if array is None or isinstance(array, np.ndarray):
        return None if array is None else np.array(array)
    name = type_name(array)
    if not hasattr(array, "data_ptr"):
        from mori.device import copy

        raw = np.empty(array.nbytes, np.uint8)
        if array.nbytes:
            copy(raw.ctypes.data, array.ptr, array.nbytes)
        return raw.view(DTYPES[name]).reshape(array.shape)
    import torch

    raw = array.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().copy()
    return raw.view(DTYPES[name]).reshape(array.shape)


def address(array: Any) -> int:
    """The address of the elements."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr())


def type_name(array: Any) -> str:
    """The bare name of the element type."""
    return str(array.dtype).removeprefix("torch.")


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays of numpy have the same shape and the same bytes: NaNs are equal, and zeros differ by sign."""
    return a.shape == b.shape and np.array(a, order="C").tobytes() == np.array(b, order="C").tobytes()
