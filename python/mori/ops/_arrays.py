# SPDX-License-Identifier: MIT
"""The two kinds of arrays that an op takes and returns: torch tensors on the CPU, and numpy arrays.

Neither is imported here: who hands in an array of a kind has loaded it. numpy has bfloat16 and float8 by ml_dtypes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal

from .._errors import InvalidArgumentError, UnsupportedError
from ..tensor_utils import dtype_name, dtype_size, from_host_ptr

Kind = Literal["torch", "numpy"]

# By type and by dtype, so that a call costs two look-ups for each of its arrays.
_kinds: dict[type, Kind] = {}
_names: dict[Any, str] = {}


def kind_of(array: Any, what: str) -> Kind:
    """Return which kind ``array`` is; TypeError for anything else, UnsupportedError for a tensor on a GPU."""
    kind = _kinds.get(type(array)) or _find_kind(array, what)
    if kind == "torch" and not array.is_cpu:
        raise UnsupportedError(
            f"{what} is on {array.device}, and this op's buffers are on host memory, the only kind of symmetric memory"
            " in this build: hand in tensors on the CPU (.cpu())"
        )
    return kind


def _find_kind(array: Any, what: str) -> Kind:
    kinds: tuple[tuple[Kind, str], ...] = (("numpy", "ndarray"), ("torch", "Tensor"))
    for kind, name in kinds:
        module = sys.modules.get(kind)
        if module is not None and isinstance(array, getattr(module, name)):
            _kinds[type(array)] = kind
            return kind
    raise TypeError(f"{what} is {type(array).__name__}, want a torch tensor on the CPU or a numpy array")


def name_of(dtype: Any) -> str:
    """Return the bare name of an element type, as in :data:`mori.tensor_utils.DTYPE_TO_INT`."""
    name = _names.get(dtype)
    if name is None:
        numpy = sys.modules.get("numpy")
        known = numpy is not None and isinstance(dtype, type) and issubclass(dtype, numpy.generic)
        name = _names[dtype] = dtype_name(numpy.dtype(dtype) if known and numpy is not None else dtype)
    return name


def kind_of_dtype(dtype: Any) -> Kind | None:
    """Return which kind has this element type; None for a name, which says nothing."""
    if isinstance(dtype, str) or dtype is None:
        return None
    return "torch" if type(dtype).__module__.partition(".")[0] == "torch" else "numpy"


def check(array: Any, what: str, shape: tuple[int, int], name: str) -> Any:
    """Return ``array`` if it is of this shape and element type."""
    kind_of(array, what)
    if array.shape != shape:
        raise InvalidArgumentError(f"{what} has the shape {tuple(array.shape)}, want {shape}")
    if name_of(array.dtype) != name:
        raise InvalidArgumentError(f"{what} has the dtype {name_of(array.dtype)}, want {name}")
    return array


def matrix(array: Any, what: str) -> tuple[int, int]:
    """Return the shape of an array of two dimensions."""
    shape = array.shape
    if len(shape) != 2:
        raise InvalidArgumentError(f"{what} has the shape {tuple(shape)}, want two dimensions")
    return shape[0], shape[1]


def view(kind: Kind, address: int, shape: Sequence[int], dtype: Any, owner: object) -> Any:
    """Return the memory at ``address`` as an array of ``kind``, which holds on to ``owner``."""
    return from_host_ptr(address, shape, name_of(dtype), kind, owner)


def empty(kind: Kind, shape: Sequence[int], dtype: Any) -> Any:
    """Return a new array whose elements are not set."""
    if kind == "torch":
        import torch

        return torch.empty(tuple(shape), dtype=getattr(torch, name_of(dtype)))
    import numpy as np

    from ..tensor_utils import numpy_dtype

    return np.empty(tuple(shape), numpy_dtype(name_of(dtype)))


def copy(kind: Kind, array: Any) -> Any:
    """Return an array with memory of its own."""
    return array.clone() if kind == "torch" else array.copy()


def address(kind: Kind, array: Any) -> int:
    """Return where the elements lie."""
    return int(array.data_ptr() if kind == "torch" else array.ctypes.data)


def contiguous(kind: Kind, array: Any) -> bool:
    """Tell whether the elements lie one after the other."""
    return bool(array.is_contiguous() if kind == "torch" else array.flags.c_contiguous)


def item_size(dtype: Any) -> int:
    """Return the bytes of an element."""
    return dtype_size(name_of(dtype))
