# SPDX-License-Identifier: MIT
"""Memory on a GPU, and host memory that GPUs reach."""

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

    torch, cupy and numba take it as an array of bytes without a copy, by ``__cuda_array_interface__``:
    ``torch.as_tensor(memory, device="cuda")``. Such an array keeps the object alive; ``close()`` takes the memory from
    it all the same.

    Args:
        nbytes: its size, 1 at least. What it holds at first is not defined.
        device: which GPU.

    Attributes:
        ptr: the address, aligned for every use.
        nbytes: the size.
        device: which GPU.

    Raises:
        OutOfMemoryError: the GPU has not so much free.
        InvalidArgumentError: there is no GPU with that number, or the size is impossible.
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
            offset: where to, in bytes from the memory's beginning.

        Raises:
            InvalidArgumentError: they do not fit, or are not contiguous.
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
        """Return ``nbytes`` bytes, ``offset`` bytes from the beginning; None: all that follow.

        Raises:
            InvalidArgumentError: the memory is not so long.
            BadStateError: the memory is closed.
        """
        self._handle()
        at = _range(self, offset, 0 if nbytes is None else nbytes, "read")
        data: bytes = _new_bytes(None, self.nbytes - at if nbytes is None else nbytes)
        if data:
            # Nobody else has seen these bytes yet.
            with memoryview(data) as view:
                move([self.device], buffer_address(view), self.ptr + at, view.nbytes)
        return data

    def read_into(self, buffer: Any, offset: int = 0) -> None:
        """Fill a writable buffer with the bytes that are ``offset`` bytes from the beginning.

        Raises:
            InvalidArgumentError: the memory is not so long, or the buffer is read-only or not contiguous.
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
    """Pinned host memory that all GPUs reach: copies to and from it run beside the host, at the link's speed.

    Args:
        nbytes: its size, 1 at least. What it holds at first is not defined.
        device: the GPU whose driver pins it.

    Attributes:
        ptr: the address for the host.
        device_ptr: the address for kernels.
        nbytes: the size.
        device: which GPU.

    Raises:
        OutOfMemoryError: the machine has not so much free, or not so much that may be pinned.
        InvalidArgumentError: there is no GPU with that number, or the size is impossible.
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

        It keeps the object alive, and ``close()`` is refused while there is one.
        """
        self._handle()
        array: Any = None if self._array is None else self._array()
        if array is None:
            array = (ctypes.c_uint8 * self.nbytes).from_address(self.ptr)
            array.owner = self
            self._array = weakref.ref(array)
        return memoryview(array).cast("B")

    def close(self) -> None:
        """Give the memory back. Further calls do nothing.

        Raises:
            BadStateError: views of it are in use.
        """
        if not self.closed and self._array is not None and self._array() is not None:
            raise BadStateError(f"{self!r} has views in use: release them before you close it")
        super().close()

    def write(self, buffer: Any, offset: int = 0) -> None:
        """Copy all bytes of a buffer into the memory; see :meth:`DeviceMemory.write`. It waits for no GPU."""
        self._handle()
        with memoryview(buffer) as view:
            at = _range(self, offset, view.nbytes, "write")
            with self.view() as mine:
                mine[at : at + view.nbytes] = view.cast("B") if view.nbytes else b""

    def read(self, nbytes: int | None = None, offset: int = 0) -> bytes:
        """Return bytes of the memory; see :meth:`DeviceMemory.read`. It waits for no GPU."""
        self._handle()
        at = _range(self, offset, 0 if nbytes is None else nbytes, "read")
        with self.view() as mine:
            return bytes(mine[at : None if nbytes is None else at + nbytes])

    def fill(self, byte: int) -> None:
        """Set every byte to ``byte``, 0 to 255. It waits for no GPU."""
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
