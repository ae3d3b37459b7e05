# SPDX-License-Identifier: MIT
"""EngineDesc and MemoryDesc: descriptions of an engine and of its memory, for its peers.

Both are read-only values and compare by content. ``pack()`` serialises them for other processes.
Treat the packed bytes as opaque; they hold more than the attributes show.
"""

from __future__ import annotations

import json
from typing import Any

from .. import _core
from .._errors import InvalidArgumentError
from ._enums import MemoryLocationType


def _unpack(kind: str, data: object) -> dict[str, Any]:
    """Decode packed bytes with native code, which defines the wire format."""
    if not isinstance(data, bytes):
        raise TypeError(f"{kind}.unpack takes bytes, got {type(data).__name__}")
    import ctypes  # a third of the package's import time, and few programs need it

    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    fields: dict[str, Any] = json.loads(_core.call("Unpack" + kind, address, len(data)))
    return fields


class EngineDesc:
    """How peers reach an engine. Only ``IOEngine.get_engine_desc`` and :meth:`unpack` make one."""

    __slots__ = ("_fields", "_packed")
    _fields: tuple[str, str, str, str, int, int]
    _packed: bytes

    def __init__(self) -> None:
        raise TypeError("EngineDesc: no constructor defined; use IOEngine.get_engine_desc() or EngineDesc.unpack()")

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> EngineDesc:
        desc = object.__new__(cls)
        desc._fields = (
            fields["key"],
            fields["node_id"],
            fields["hostname"],
            fields["host"],
            fields["port"],
            fields["pid"],
        )
        desc._packed = bytes.fromhex(fields["packed"])
        return desc

    @property
    def key(self) -> str:
        """The engine's name, as given to its constructor."""
        return self._fields[0]

    @property
    def node_id(self) -> str:
        """Identity of the host: ``MORI_NODE_ID``, else the kernel's boot id, else the host name."""
        return self._fields[1]

    @property
    def hostname(self) -> str:
        """Name of the host."""
        return self._fields[2]

    @property
    def host(self) -> str:
        """Address of the control plane, as configured."""
        return self._fields[3]

    @property
    def port(self) -> int:
        """Port of the control plane; 0 until a backend has bound it."""
        return self._fields[4]

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._fields[5]

    def pack(self) -> bytes:
        """Return the bytes that :meth:`unpack` takes, here or on another host."""
        return self._packed

    @staticmethod
    def unpack(data: bytes) -> EngineDesc:
        """Return the description that ``data`` holds.

        Raises:
            TypeError: ``data`` is not bytes.
            RuntimeError: the bytes are truncated or of another shape.
        """
        return EngineDesc._of(_unpack("EngineDesc", data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EngineDesc) and self._fields == other._fields

    def __reduce__(self) -> tuple[Any, ...]:
        return EngineDesc.unpack, (self._packed,)

    def __repr__(self) -> str:
        return f"<EngineDesc {self.key!r} {self.host}:{self.port} pid {self.pid} on {self.hostname}>"


class MemoryDesc:
    """A registered memory region.

    ``register_memory``, ``register_torch_tensor`` and :meth:`unpack` make one. ``MemoryDesc()``
    makes an empty one, which no transfer accepts.
    """

    __slots__ = ("_fields", "_packed")
    _fields: tuple[str, int, int, str, int, int, int, MemoryLocationType, bytes, int]
    _packed: bytes | None

    def __init__(self) -> None:
        self._fields = ("", 0, -1, "", -1, 0, 0, MemoryLocationType.Unknown, bytes(64), 0)
        self._packed = None

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> MemoryDesc:
        desc = object.__new__(cls)
        try:
            loc = MemoryLocationType(fields["loc"])
        except ValueError as err:
            raise InvalidArgumentError(f"unpack a MemoryDesc: {err}") from None
        desc._fields = (
            fields["engine_key"],
            fields["id"],
            fields["device_id"],
            fields["device_bus_id"],
            fields["numa_node"],
            fields["data"],
            fields["size"],
            loc,
            bytes.fromhex(fields["ipc_handle"]),
            fields["ipc_offset"],
        )
        desc._packed = bytes.fromhex(fields["packed"])
        return desc

    @property
    def engine_key(self) -> str:
        """Key of the engine that registered the memory."""
        return self._fields[0]

    @property
    def id(self) -> int:
        """Number of the registration in its engine: 0, 1, 2, ..., never reused."""
        return self._fields[1]

    @property
    def device_id(self) -> int:
        """GPU ordinal; -1 for host memory."""
        return self._fields[2]

    @property
    def device_bus_id(self) -> str:
        """PCI address of the GPU (``dddd:bb:dd.f``, lower case); empty for host memory."""
        return self._fields[3]

    @property
    def numa_node(self) -> int:
        """NUMA node of the first page of host memory; -1 when unknown, and for GPU memory."""
        return self._fields[4]

    @property
    def data(self) -> int:
        """Address of the first byte in the registering process."""
        return self._fields[5]

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._fields[6]

    @property
    def loc(self) -> MemoryLocationType:
        """Whether the memory is on a CPU or a GPU."""
        return self._fields[7]

    @property
    def ipc_handle(self) -> bytes:
        """64-byte handle with which other processes of the host open GPU memory; zeros if none."""
        return self._fields[8]

    def pack(self) -> bytes:
        """Return the bytes that :meth:`unpack` takes, here or on another host."""
        if self._packed is None:
            self._packed = bytes.fromhex(json.loads(_core.call("EmptyMemoryDesc"))["packed"])
        return self._packed

    @staticmethod
    def unpack(data: bytes) -> MemoryDesc:
        """Return the description that ``data`` holds.

        Raises:
            TypeError: ``data`` is not bytes.
            RuntimeError: the bytes are truncated or of another shape.
        """
        return MemoryDesc._of(_unpack("MemoryDesc", data))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryDesc):
            return False
        return self._fields[:8] == other._fields[:8] and self._fields[9] == other._fields[9]

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryDesc.unpack, (self.pack(),)

    def __repr__(self) -> str:
        where = f"{self.loc.name}{self.device_id if self.device_id >= 0 else ''}"
        return f"<MemoryDesc {self.engine_key!r} #{self.id}: {self.size} bytes at {self.data:#x} on {where}>"
