# SPDX-License-Identifier: MIT
"""The native engine and session, under the names of ``mori.cpp``. They own the native handles.

:class:`mori.io.IOEngine` and :class:`mori.io.IOEngineSession` wrap these. A transfer call here
takes the status object as an argument; the wrappers return one instead.

An engine closes on ``Close()``, when its last reference is dropped, or at interpreter exit. A
session keeps its engine alive. A forked child closes nothing: the handles belong to the parent.
"""

from __future__ import annotations

import json
import operator
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from .. import _core
from .._errors import InvalidArgumentError, UnsupportedError, from_native
from ._config import (
    BackendConfig,
    FabricBackendConfig,
    IOEngineConfig,
    RdmaBackendConfig,
    XgmiBackendConfig,
    backend_config,
)
from ._desc import EngineDesc, MemoryDesc
from ._enums import BackendType, MemoryLocationType, StatusCode
from ._mirror import Mirror
from ._status import TransferStatus

_CONFIGS: dict[BackendType, type[BackendConfig]] = {
    BackendType.RDMA: RdmaBackendConfig,
    BackendType.TCP: RdmaBackendConfig,
    BackendType.XGMI: XgmiBackendConfig,
    BackendType.FABRIC: FabricBackendConfig,
}

# Most memory pairs that an engine caches. At this size the cache is cleared, so that short-lived
# peers do not fill memory.
_MAX_PAIRS = 65536


def _close(function: str, handle: int, owner_pid: int) -> None:
    if os.getpid() == owner_pid:
        _core.call(function, handle)


def _uint64(value: Any, what: str) -> int:
    """Return ``value`` as an int of 64 bits; the native side does not check ranges."""
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise TypeError(f"{what} must be an int from 0 to 2**64-1, got {value!r}")
    return number


def _expect(kind: type, value: Any, what: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{what} must be a {kind.__name__}, got {value!r}")
    return value


class Pair:
    """A native session, cached for two memories. It closes with its last reference."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        weakref.finalize(self, _close, "SessionClose", handle, os.getpid()).atexit = False


class IOEngine:
    """The native engine. Prefer :class:`mori.io.IOEngine`, which documents the operations."""

    def __init__(self, key: str, config: IOEngineConfig) -> None:
        _expect(str, key, "key")
        _expect(IOEngineConfig, config, "config")
        self._handle: int = _core.call("EngineNew", key, config.host, config.port)
        self._lock = threading.Lock()
        self._pairs: dict[tuple[bytes, bytes], Pair] = {}
        self._generation = 0
        self._mirror = Mirror()
        self._finalizer = weakref.finalize(self, _close, "EngineClose", self._handle, os.getpid())

    def Close(self) -> None:
        """Stop the engine's threads and fail the transfers in flight. Further calls do nothing."""
        _core.call("EngineClose", self._handle)
        self._finalizer.detach()
        self._forget_pairs()

    def GetEngineDesc(self) -> EngineDesc:
        """Return the description of this engine for peers."""
        return EngineDesc._of(json.loads(_core.call("EngineDesc", self._handle)))

    def FileNo(self) -> int:
        """Return a file descriptor that becomes readable when transfers of this engine end."""
        fd: int = _core.call("EngineFD", self._handle)
        return fd

    def Describe(self) -> dict[str, Any]:
        """Return what it has and does, as a dictionary."""
        described: dict[str, Any] = json.loads(_core.call("EngineDescribe", self._handle))
        return described

    def Stats(self) -> dict[str, Any]:
        """Return statistics of its transfers; see :meth:`mori.io.IOEngine.stats`."""
        stats: dict[str, Any] = json.loads(_core.call("EngineStats", self._handle))
        return stats

    def Trace(self) -> str:
        """Return its last transfers as trace-event JSON."""
        text: str = _core.call("EngineTrace", self._handle)
        return text

    def InboundTag(self, remote_key: str, uid: int) -> str | None:
        """Return the tag of a peer's transfer; see :meth:`mori.io.IOEngine.inbound_tag`."""
        _expect(str, remote_key, "remote_key")
        tag: str | None = json.loads(_core.call("EngineInboundTag", self._handle, remote_key, _uint64(uid, "uid")))
        return tag

    def CreateBackend(self, type: BackendType, config: BackendConfig | None = None) -> None:
        """Start a backend; see :meth:`mori.io.IOEngine.create_backend`."""
        # The API compares by identity: an equal member of another enum is not a backend.
        wanted = next((cls for known, cls in _CONFIGS.items() if known is type), None)
        if wanted is None:
            raise NotImplementedError("backend not implemented yet")
        text = backend_config(config, wanted)
        _core.call("EngineCreateBackend", self._handle, int(type), text)
        self._forget_pairs()

    def RemoveBackend(self, type: BackendType) -> None:
        """Stop a backend. Does nothing if it does not exist."""
        _expect(BackendType, type, "type")
        _core.call("EngineRemoveBackend", self._handle, int(type))
        self._forget_pairs()

    def RegisterRemoteEngine(self, desc: EngineDesc) -> None:
        """Register a peer with every existing backend."""
        _expect(EngineDesc, desc, "desc")
        _core.call("EngineRegisterRemote", self._handle, desc.pack().hex())
        self._forget_pairs()

    def DeregisterRemoteEngine(self, desc: EngineDesc) -> None:
        """Remove a peer. Does nothing if the peer is unknown."""
        _expect(EngineDesc, desc, "desc")
        _core.call("EngineDeregisterRemote", self._handle, desc.pack().hex())
        self._forget_pairs()

    def RegisterMemory(self, ptr: int, size: int, device_id: int, loc: MemoryLocationType) -> MemoryDesc:
        """Register ``size`` bytes at ``ptr``; see :meth:`mori.io.IOEngine.register_memory`."""
        address = _uint64(ptr, "ptr")
        length = _uint64(size, "size")
        _expect(MemoryLocationType, loc, "mem_loc")
        if address == 0:
            raise InvalidArgumentError("register memory: ptr is 0")
        device = operator.index(device_id)
        if not -(2**31) <= device < 2**31:
            raise TypeError(f"device_id must be a 32-bit int, got {device_id!r}")
        text = _core.call("EngineRegisterMemory", self._handle, address, length, device, int(loc))
        return MemoryDesc._of(json.loads(text))

    def DeregisterMemory(self, desc: MemoryDesc) -> None:
        """Deregister a memory. Does nothing if the memory is unknown."""
        _expect(MemoryDesc, desc, "desc")
        packed = desc.pack()
        _core.call("EngineDeregisterMemory", self._handle, packed.hex())
        self._forget_pairs(packed)

    def AllocateTransferUniqueId(self) -> int:
        """Return the next transfer number of the engine."""
        try:
            uid: int = _core.fast().alloc_uid(self._handle)
        except RuntimeError as err:
            raise from_native(err) from None
        return uid

    def CreateSession(self, local: MemoryDesc, remote: MemoryDesc) -> IOEngineSession | None:
        """Prepare transfers between two memories; None when no backend can serve the pair."""
        _expect(MemoryDesc, local, "local")
        _expect(MemoryDesc, remote, "remote")
        handle = _core.call("EngineCreateSession", self._handle, local.pack().hex(), remote.pack().hex())
        return IOEngineSession(self, handle) if handle else None

    def PopInboundTransferStatus(self, remote_key: str, uid: int, status: TransferStatus) -> bool:
        """Set ``status`` to SUCCESS and return True once transfer ``uid`` of ``remote_key`` has arrived here."""
        _expect(str, remote_key, "remote_key")
        try:
            arrived: bool = _core.fast().pop_inbound(self._handle, remote_key, uid)
        except RuntimeError as err:
            raise from_native(err) from None
        if arrived:
            status.SetCode(StatusCode.SUCCESS)
        return arrived

    def WaitAll(self, statuses: Sequence[TransferStatus | None], timeout_ms: int = -1) -> StatusCode:
        """Wait for transfers; see :meth:`mori.io.IOEngine.wait_all`."""
        try:
            return StatusCode(_core.fast().wait_all(statuses, timeout_ms))
        except RuntimeError as err:
            raise from_native(err) from None

    def LoadScatterGatherModule(self, path: str) -> None:
        """Raise UnsupportedError: mori ships the kernels for small blocks compiled."""
        raise UnsupportedError(f"load {path}: mori uses its own scatter/gather kernel only")

    def LoadFabricCopyModule(self, path: str) -> None:
        """Raise UnsupportedError: this build has no FABRIC backend."""
        raise UnsupportedError(f"load {path}: the fabric copy kernel needs a FABRIC backend, which this build lacks")

    def Read(
        self,
        local: MemoryDesc,
        local_off: int,
        remote: MemoryDesc,
        remote_off: int,
        size: int,
        status: TransferStatus,
        uid: int,
    ) -> None:
        """Copy ``size`` bytes from the remote to the local memory; ``status`` reports its progress."""
        pair = self.pair(local, remote)
        self._post_one(False, pair.handle, local_off, remote_off, size, status, uid)

    def Write(
        self,
        local: MemoryDesc,
        local_off: int,
        remote: MemoryDesc,
        remote_off: int,
        size: int,
        status: TransferStatus,
        uid: int,
    ) -> None:
        """Copy ``size`` bytes from the local to the remote memory; ``status`` reports its progress."""
        pair = self.pair(local, remote)
        self._post_one(True, pair.handle, local_off, remote_off, size, status, uid)

    def BatchRead(self, *columns: Any) -> None:
        """Take locals, local_offs, remotes, remote_offs, sizes, statuses, uids: one entry for each pair."""
        self._post_columns(False, columns)

    def BatchWrite(self, *columns: Any) -> None:
        """Take locals, local_offs, remotes, remote_offs, sizes, statuses, uids: one entry for each pair."""
        self._post_columns(True, columns)

    def _post_columns(self, is_write: bool, columns: tuple[Any, ...]) -> None:
        if len(columns) != 7 or len({len(column) for column in columns}) != 1:
            raise ValueError(
                "batch calls take seven lists of one length: locals, local_offs, remotes, remote_offs,"
                " sizes, statuses, uids"
            )
        for local, local_offs, remote, remote_offs, sizes, status, uid in zip(*columns, strict=True):
            pair = self.pair(local, remote)
            self._post(is_write, pair.handle, local_offs, remote_offs, sizes, status, uid)

    def _post(
        self, is_write: bool, handle: int, lo: Any, ro: Any, sizes: Any, status: TransferStatus, uid: int
    ) -> None:
        _expect(TransferStatus, status, "status")
        self._mirror.follow(_core.fast().post(handle, is_write, lo, ro, sizes, uid), status)

    def _post_one(
        self, is_write: bool, handle: int, lo: int, ro: int, size: int, status: TransferStatus, uid: int
    ) -> None:
        _expect(TransferStatus, status, "status")
        self._mirror.follow(_core.fast().post_one(handle, is_write, lo, ro, size, uid), status)

    def pair(self, local: MemoryDesc, remote: MemoryDesc) -> Pair:
        """Return the cached session for two memories.

        The caller must hold a reference to it while using its handle.
        """
        try:
            key = (local._packed or local.pack(), remote._packed or remote.pack())
        except AttributeError:
            raise TypeError(f"local and remote must be MemoryDesc, got {local!r} and {remote!r}") from None
        return self._pairs.get(key) or self._find_pair(key)

    def _find_pair(self, key: tuple[bytes, bytes]) -> Pair:
        generation = self._generation
        pair = Pair(_core.call("EngineSessionFor", self._handle, key[0].hex(), key[1].hex()))
        with self._lock:
            if len(self._pairs) >= _MAX_PAIRS:
                self._pairs.clear()
            # If the engine changed after the session was made, the session may be invalid: do not
            # cache it.
            if generation == self._generation:
                self._pairs[key] = pair
        return pair

    def _forget_pairs(self, memory: bytes | None = None) -> None:
        """Drop the cached sessions of one memory, or all, when a change may invalidate them."""
        with self._lock:
            self._generation += 1
            kept = {} if memory is None else {key: pair for key, pair in self._pairs.items() if memory not in key}
            self._pairs = kept


class IOEngineSession:
    """The native session. Prefer :class:`mori.io.IOEngineSession`."""

    def __init__(self, engine: IOEngine, handle: int) -> None:
        self._engine = engine
        self._handle = handle
        self._finalizer = weakref.finalize(self, _close, "SessionClose", handle, os.getpid())
        # Closing the engine closes its sessions, so nothing is left to do at interpreter exit.
        self._finalizer.atexit = False

    def AllocateTransferUniqueId(self) -> int:
        """Return the next transfer number of the engine."""
        return self._engine.AllocateTransferUniqueId()

    def Alive(self) -> bool:
        """Report whether the session can still carry transfers."""
        alive: bool = _core.call("SessionAlive", self._handle)
        return alive

    def Describe(self) -> dict[str, Any]:
        """Return what it has and does, as a dictionary."""
        described: dict[str, Any] = json.loads(_core.call("SessionDescribe", self._handle))
        return described

    def WithDeadline(self, deadline_ms: int) -> IOEngineSession:
        """Return a session between the same memories with this deadline; 0 means no deadline."""
        return IOEngineSession(self._engine, _core.call("SessionWithDeadline", self._handle, deadline_ms))

    def Cancel(self, uid: int, timeout_ms: int = 5000) -> None:
        """Cancel the transfers with this number; see :meth:`TransferStatus.Cancel`."""
        _core.call("SessionCancel", self._handle, _uint64(uid, "uid"), timeout_ms)

    def Close(self) -> None:
        """Close the session. Pending transfers continue. Further calls do nothing."""
        _core.call("SessionClose", self._handle)
        self._finalizer.detach()

    def Read(self, local_off: int, remote_off: int, size: int, status: TransferStatus, uid: int) -> None:
        """Copy ``size`` bytes from the remote to the local memory; ``status`` reports its progress."""
        self._engine._post_one(False, self._handle, local_off, remote_off, size, status, uid)

    def Write(self, local_off: int, remote_off: int, size: int, status: TransferStatus, uid: int) -> None:
        """Copy ``size`` bytes from the local to the remote memory; ``status`` reports its progress."""
        self._engine._post_one(True, self._handle, local_off, remote_off, size, status, uid)

    def BatchRead(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        status: TransferStatus,
        uid: int,
    ) -> None:
        """Copy blocks from the remote to the local memory as one transfer."""
        self._engine._post(False, self._handle, local_offs, remote_offs, sizes, status, uid)

    def BatchWrite(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        status: TransferStatus,
        uid: int,
    ) -> None:
        """Copy blocks from the local to the remote memory as one transfer."""
        self._engine._post(True, self._handle, local_offs, remote_offs, sizes, status, uid)
