# SPDX-License-Identifier: MIT
"""GPU memory at a raw address as an array, for DLPack and ``__cuda_array_interface__``."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from .device import lookup

# Element types that both protocols have: array interface letter, DLPack type code.
_PLAIN: dict[str, tuple[str, int]] = {
    "bool": ("b", 6),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), ("i", 0)),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), ("u", 1)),
    **dict.fromkeys(("float16", "float32", "float64"), ("f", 2)),
    **dict.fromkeys(("complex64", "complex128"), ("c", 5)),
}

_DL_CUDA, _DL_ROCM = 2, 10


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

# Keeps each exported structure and its shape alive until the DLPack consumer calls the deleter.
_exported: dict[int, tuple[Any, Any]] = {}


def _release(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


# Takes the capsule as a plain address. The capsule is being destroyed; taking and dropping a
# reference to it would destroy it a second time.
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is_valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_capsule_is_valid.restype = ctypes.c_int
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_capsule_new.restype = ctypes.py_object


def _drop_unconsumed(capsule: int) -> None:
    # A consumer renames the capsule, and must then call the deleter itself.
    if _capsule_is_valid(capsule, b"dltensor"):
        _exported.pop(_capsule_pointer(capsule, b"dltensor"), None)


_release_callback = _Deleter(_release)
_drop_callback = _Destructor(_drop_unconsumed)


class GpuTensorView:
    """An array over GPU memory that it does not own; see :func:`mori.tensor_utils.gpu_tensor_view`.

    Attributes: ``ptr``, ``shape`` (extents in elements), ``dtype`` (its name), ``device_id``, ``nbytes``.
    """

    def __init__(self, ptr: int, shape: tuple[int, ...], dtype: str, item_size: int, device_id: int) -> None:
        if ptr <= 0 or any(extent < 0 for extent in shape):
            raise ValueError(f"not an array in memory: ptr {ptr:#x}, shape {shape}")
        self.ptr = ptr
        self.shape = shape
        self.dtype = dtype
        self.device_id = device_id
        self._item_size = item_size
        self.nbytes = item_size
        for extent in shape:
            self.nbytes *= extent

    def _exchange(self) -> tuple[str, int, int, tuple[int, ...]]:
        """Return the letter, DLPack code, item size and shape that the protocols can express."""
        if self.dtype in _PLAIN:
            return *_PLAIN[self.dtype], self._item_size, self.shape
        last = self.shape[-1:] or (1,)
        return "u", 1, 1, (*self.shape[:-1], last[0] * self._item_size)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        letter, _, item, shape = self._exchange()
        order = "|" if item == 1 else "<"
        return {
            "shape": shape,
            "typestr": f"{order}{letter}{item}",
            "data": (self.ptr, False),
            "strides": None,
            "version": 2,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_DL_ROCM if _is_rocm(self.ptr) else _DL_CUDA), self.device_id

    def __dlpack__(self, *, stream: Any = None, **_newer: Any) -> Any:
        """Return a DLPack capsule. The caller orders its work after the memory's producer; ``stream`` is not used."""
        _, code, item, shape = self._exchange()
        extents = (ctypes.c_int64 * len(shape))(*shape)
        managed = _DLManagedTensor()
        tensor = managed.tensor
        tensor.data, tensor.byte_offset = self.ptr, 0
        tensor.device_type, tensor.device_id = self.__dlpack_device__()
        tensor.ndim, tensor.code, tensor.bits, tensor.lanes = len(shape), code, item * 8, 1
        tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
        managed.deleter = _release_callback
        address = ctypes.addressof(managed)
        _exported[address] = (managed, extents)
        return _capsule_new(address, b"dltensor", ctypes.cast(_drop_callback, ctypes.c_void_p))

    def __repr__(self) -> str:
        return f"<GpuTensorView {self.dtype}{list(self.shape)} at {self.ptr:#x} on GPU {self.device_id}>"


def _is_rocm(ptr: int) -> bool:
    """Report whether the memory belongs to an AMD GPU.

    A loaded ROCm build of torch answers this for all GPUs; otherwise the driver is asked.
    """
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch.version, "hip", None) is not None:
        return True
    return lookup(ptr).api == "HIP"
