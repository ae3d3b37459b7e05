# SPDX-License-Identifier: MIT
"""GPU memory, and pinned host memory that GPUs can access."""

from __future__ import annotations

import ctypes
import operator
import weakref
from typing import Any

from .. import _core
from .._buffer import buffer_address
from .._errors import BadStateError, InvalidArgumentError
from ._copy import fill, move
from ._info import device_number
from ._owned import Owned

_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t]
_new_bytes.restype = ctypes.py_object


class DeviceMemory(Owned):
    """Memory on a GPU.

    torch, cupy and numba use it as an array of bytes without a copy, through
    ``__cuda_array_interface__``: ``torch.as_tensor(memory, device="cuda")``. Such an array keeps
    the object alive, but ``close()`` frees the memory regardless.

    Args:
        nbytes: its size, at least 1. The contents are initially undefined.
        device: GPU number.

    Attributes:
        ptr: the address, aligned for any type.
        nbytes: the size.
        device: GPU number.

    Raises:
        OutOfMemoryError: the GPU has too little free memory.
        InvalidArgumentError: no GPU has that number, or the size is invalid.
        UnsupportedError: there is no GPU.
    """

    def __init__(self, nbytes: int, device: int = 0) -> None:
        number, size = device_number(device), _size(nbytes)
        handle = _core.call("DeviceAlloc", number, size)
        super().__init__(handle, "DeviceFree")
        self.ptr: int = _core.call("DeviceAddr", handle)
        self.nbytes = size
        self.device = number

    def write(self, buffer: Any, offset: int = 0) -> None:
        """Copy all bytes of a buffer into the memory.

        Args:
            buffer: bytes, bytearray, numpy array, ...
            offset: destination, in bytes from the start of the memory.

        Raises:
            InvalidArgumentError: the bytes do not fit, or the buffer is not contiguous.
            BadStateError: the memory is closed.
        """
        self._handle()
        with memoryview(buffer) as view:
            at = _range(self, offset, view.nbytes, "write")
            if not view.c_contiguous:
                raise InvalidArgumentError("the buffer must be contiguous")
            if view.nbytes:
                move([self.device], self.ptr + at, buffer_address(view), view.nbytes)

    def read(self, nbytes: int | None = None, offset: int = 0) -> bytes:
        """Return ``nbytes`` bytes from ``offset`` on; None means all up to the end.

        Raises:
            InvalidArgumentError: the range exceeds the memory.
            BadStateError: the memory is closed.
        """
        self._handle()
        at = _range(self, offset, 0 if nbytes is None else nbytes, "read")
        data: bytes = _new_bytes(None, self.nbytes - at if nbytes is None else nbytes)
        if data:
            # No other code holds these bytes yet, so writing to them is safe.
            with memoryview(data) as view:
                move([self.device], buffer_address(view), self.ptr + at, view.nbytes)
        return data

    def read_into(self, buffer: Any, offset: int = 0) -> None:
        """Fill a writable buffer with the bytes from ``offset`` on.

        Raises:
            InvalidArgumentError: the range exceeds the memory, or the buffer is read-only or not
                contiguous.
            BadStateError: the memory is closed.
        """
        self._handle()
        with memoryview(buffer) as view:
            at = _range(self, offset, view.nbytes, "read")
            if view.readonly or not view.c_contiguous:
                raise InvalidArgumentError("the buffer must be writable and contiguous")
            if view.nbytes:
                move([self.device], buffer_address(view), self.ptr + at, view.nbytes)

    def fill(self, byte: int) -> None:
        """Set every byte to ``byte``, 0 to 255."""
        self._handle()
        fill(self.device, self.ptr, _byte(byte), self.nbytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._handle()
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.ptr, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"<DeviceMemory {self.nbytes} bytes at {self.ptr:#x} on GPU {self.device}{_closed(self)}>"


class HostMemory(Owned):
    """Pinned host memory that all GPUs can access. Copies run asynchronously, at the link's speed.

    Args:
        nbytes: its size, at least 1. The contents are initially undefined.
        device: the GPU whose driver pins it.

    Attributes:
        ptr: the address for the host.
        device_ptr: the address for kernels.
        nbytes: the size.
        device: GPU number.

    Raises:
        OutOfMemoryError: the host has too little free memory, or too little that may be pinned.
        InvalidArgumentError: no GPU has that number, or the size is invalid.
        UnsupportedError: there is no GPU.
    """

    def __init__(self, nbytes: int, device: int = 0) -> None:
        number, size = device_number(device), _size(nbytes)
        handle = _core.call("HostAlloc", number, size)
        super().__init__(handle, "HostFree")
        self.ptr: int = _core.call("HostAddr", handle)
        self.device_ptr: int = _core.call("HostDeviceAddr", handle)
        self.nbytes = size
        self.device = number
        self._array: weakref.ref[Any] | None = None

    def view(self) -> memoryview:
        """Return the memory as a writable memoryview of bytes, which ``numpy.frombuffer`` takes.

        The view keeps the object alive. ``close()`` raises while a view exists.
        """
        self._handle()
        array: Any = None if self._array is None else self._array()
        if array is None:
            array = (ctypes.c_uint8 * self.nbytes).from_address(self.ptr)
            array.owner = self
            self._array = weakref.ref(array)
        return memoryview(array).cast("B")

    def close(self) -> None:
        """Free the memory. Further calls do nothing.

        Raises:
            BadStateError: views of the memory exist.
        """
        if not self.closed and self._array is not None and self._array() is not None:
            raise BadStateError(f"{self!r} has views in use: release them before you close it")
        super().close()

    def write(self, buffer: Any, offset: int = 0) -> None:
        """Copy a buffer into the memory like :meth:`DeviceMemory.write`. Waits for no GPU."""
        self._handle()
        with memoryview(buffer) as view:
            at = _range(self, offset, view.nbytes, "write")
            with self.view() as mine:
                mine[at : at + view.nbytes] = view.cast("B") if view.nbytes else b""

    def read(self, nbytes: int | None = None, offset: int = 0) -> bytes:
        """Return bytes of the memory like :meth:`DeviceMemory.read`, without waiting for a GPU."""
        self._handle()
        at = _range(self, offset, 0 if nbytes is None else nbytes, "read")
        with self.view() as mine:
            return bytes(mine[at : None if nbytes is None else at + nbytes])

    def fill(self, byte: int) -> None:
        """Set every byte to ``byte``, 0 to 255, without waiting for a GPU."""
        self._handle()
        ctypes.memset(self.ptr, _byte(byte), self.nbytes)

    def __repr__(self) -> str:
        return f"<HostMemory {self.nbytes} bytes at {self.ptr:#x}{_closed(self)}>"


def _closed(memory: Owned) -> str:
    return ", closed" if memory.closed else ""


def _size(nbytes: Any) -> int:
    size = operator.index(nbytes)
    if not 0 < size < 2**63:
        raise InvalidArgumentError(f"nbytes must be at least 1, got {nbytes!r}")
    return size


def _byte(value: Any) -> int:
    byte = operator.index(value)
    if not 0 <= byte <= 255:
        raise InvalidArgumentError(f"byte must be 0 to 255, got {value!r}")
    return byte


def _range(memory: DeviceMemory | HostMemory, offset: Any, nbytes: Any, act: str) -> int:
    at, count = operator.index(offset), operator.index(nbytes)
    if at < 0 or count < 0 or at + count > memory.nbytes:
        raise InvalidArgumentError(f"{act} {count} bytes at offset {at}: the memory has {memory.nbytes} bytes")
    return at
