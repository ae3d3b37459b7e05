# SPDX-License-Identifier: MIT
"""IOEngine: the object that registers memory, knows its peers and moves bytes."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from .._errors import BadStateError, ConnectionFailedError, MoriError, NotFoundError
from . import _native
from ._config import BackendConfig, IOEngineConfig
from ._desc import EngineDesc, MemoryDesc
from ._enums import BackendType, MemoryLocationType, StatusCode
from ._names import also
from ._session import IOEngineSession
from ._status import TransferStatus
from ._transfer import options

if TYPE_CHECKING:
    import torch

TORCH_DEVICE_TYPE_MAP: dict[str, MemoryLocationType] = {
    "cpu": MemoryLocationType.CPU,
    "cuda": MemoryLocationType.GPU,
}
"""The memory location that each torch device type stands for."""


class IOEngine:
    """Moves blocks of memory to and from other engines, of this process, this host or others.

    Args:
        key: a name, unique among the engines that talk to each other.
        config: where the engine listens; copied.

    The usual course: make an engine, ``create_backend``, register memory, exchange the packed descriptions of engines
    and memories with the peer by any means, ``register_remote_engine``, then read and write, with sessions for pairs
    that are used often. Offsets and sizes are bytes.

    Memory stays owned by the caller and must stay valid until it is deregistered or the engine is closed. The engine
    closes by :meth:`close`, at the end of a ``with`` block, when its last reference (its sessions hold one) goes, or at
    interpreter exit. Transfers that are then in flight fail; their statuses stay readable.

    All methods may be called from any thread. In a child forked after the engine was made every call raises
    :class:`mori.io.ForkError`.
    """

    def __init__(self, key: str, config: IOEngineConfig) -> None:
        self._engine = _native.IOEngine(key, config)
        self._handle = self._engine._handle
        self._pair = self._engine.pair
        fast = _core.fast()
        self._post: Callable[..., TransferStatus] = fast.post
        self._post_one: Callable[..., TransferStatus] = fast.post_one
        self._failed_status = fast.failed_status

    def close(self) -> None:
        """Stop the engine and fail what is in flight. Further closes do nothing, other calls raise RuntimeError."""
        self._engine.Close()

    def __enter__(self) -> IOEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_engine_desc(self) -> EngineDesc:
        """Return how peers reach this engine. The port is the bound one once a backend exists."""
        return self._engine.GetEngineDesc()

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when transfers of this engine end, for epoll and event loops.

        ``os.read(engine.fileno(), 8)`` makes it not readable until the next transfer ends; look at the statuses after
        that. It is the engine's: do not close it. In asyncio ``await status`` is simpler.
        """
        return self._engine.FileNo()

    def describe(self) -> dict[str, Any]:
        """Return what the engine has and does: backends, peers with their paths and the reasons, counters."""
        return self._engine.Describe()

    def stats(self) -> dict[str, Any]:
        """Return what the engine's transfers did and do. Counting is always on and costs less than 1 %.

        Names end in their unit; sums count from the making of the engine::

            {"key": "prefill-0", "time_s": ..., "uptime_s": 12.5, "regions": 2, "in_flight": 1,
             "totals": {"reads": 0, "writes": 900, "read_bytes": 0, "write_bytes": ..., "failed": 1, "canceled": 0,
                        "refused": 0, "replays": 3, "altered": 0, "packed": 0},
             "peers": [{"key": "decode-0", "known": True, "paths": [{
                 "path": "shm/cma", "backend": "RDMA", "open": True, "reasons": [],
                 "read": {...}, "write": {
                     "transfers": 900, "bytes": ..., "in_flight": 1, "failed": 1, "failures": {"ERR_RDMA_OP": 1},
                     "canceled": 0, "replays": 3, "bytes_per_s_1s": ..., "bytes_per_s_10s": ...,
                     "latency": {"count": 900, "sum_us": ..., "mean_us": ..., "p50_us": ...,
                                 "p90_us": ..., "p99_us": ...,
                                 "buckets": [{"below_us": 64, "count": 880}, ...]}}}]}],
             "stuck": [...], "slowest": [...], "tags": {"waiting": 0, "dropped": 0}}

        ``peers`` and their ``paths`` stay when the connection goes; ``known`` and ``open`` say what is there now.
        ``transfers`` succeeded; ``failed`` ones are in ``failures`` by code, ``canceled`` are some of them. ``bytes``
        count as they move. ``replays`` are transfers that continued over another path when this one broke.
        ``altered`` counts ops sent again because their checksum differed, ``packed`` payloads that were compressed.
        ``bytes_per_s_1s`` and ``bytes_per_s_10s`` are over the last 1 and 10 seconds. ``latency`` is from submission
        until success was reported, of successes only. Its quantiles are right to a factor of 2, as the buckets are
        powers of 2 (``below_us`` None: no bound).

        ``stuck`` has at most 16 transfers that are in flight for more than 1 s, ``slowest`` the 16 slowest of the last
        4096 that ended. Each is a dictionary of ``peer``, ``path``, ``kind`` ("read" or "write"), ``uid``, ``tag`` (""
        is none), ``code``, ``stage``, ``bytes``, ``bytes_done``, ``ops``, ``replays``, ``start_s`` (since 1970), and
        the times since its start ``first_op_us``, ``last_op_us`` (0: not yet) and ``took_us``. ``tags`` counts those
        on their way to peers.

        Raises:
            RuntimeError: the engine is closed.
        """
        return self._engine.Stats()

    def dump_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the last 4096 transfers and those in flight as a trace, JSON for https://ui.perfetto.dev.

        Each peer and path has a track, and more where transfers overlap. A transfer is a slice with its tag, uid,
        bytes, code and replays, and within it one slice for each stage: until its first op was done, until the last
        was, until its end was reported.

        Args:
            path: a file to write as well; None writes none.

        Raises:
            OSError: the file cannot be written.
            RuntimeError: the engine is closed.
        """
        text = self._engine.Trace()
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def inbound_tag(self, remote_key: str, uid: int) -> str | None:
        """Return the tag of a peer's transfer, which it gave by ``session.write(..., tag="req-7")`` or another call.

        Args:
            remote_key: key of the engine that submitted the transfer.
            uid: its number there.

        Returns:
            The tag, again and again; None if there was none, and as long as it has not arrived, which may be some
            milliseconds after the bytes. The last 16384 tags of each registered peer are kept.

        Raises:
            TypeError: an argument has the wrong type.
            RuntimeError: the engine is closed.
        """
        return self._engine.InboundTag(remote_key, uid)

    def create_backend(self, type: BackendType, config: BackendConfig | None = None) -> None:
        """Start a way of moving bytes.

        Args:
            type: ``BackendType.RDMA`` works everywhere; on a host without a NIC it uses shared memory and TCP, and
                copies between GPUs of one host. ``BackendType.XGMI`` is those copies alone, without a network.
            config: None takes the defaults. RDMA and TCP take an ``RdmaBackendConfig``.

        A second backend of the same type is not made; a warning is logged.

        Raises:
            NotImplementedError: ``type`` is not one of the four backends (the very objects, not equal ones).
            TypeError: ``config`` is of another backend.
            RuntimeError: the values do not fit together, the port is taken, or this host lacks the hardware.
        """
        self._engine.CreateBackend(type, config)

    def remove_backend(self, type: BackendType) -> None:
        """Stop the backend; nothing happens without one."""
        self._engine.RemoveBackend(type)

    @also(desc="engine_desc")
    def register_remote_engine(self, engine_desc: EngineDesc) -> None:
        """Make a peer known to every backend that exists now. Sends nothing; the last description of a key counts."""
        self._engine.RegisterRemoteEngine(engine_desc)

    @also(desc="engine_desc")
    def deregister_remote_engine(self, engine_desc: EngineDesc) -> None:
        """Forget a peer; nothing happens if it is not known."""
        self._engine.DeregisterRemoteEngine(engine_desc)

    def register_memory(self, ptr: int, size: int, device_id: int, mem_loc: MemoryLocationType) -> MemoryDesc:
        """Make memory usable for transfers.

        Args:
            ptr: address of the first byte.
            size: length in bytes. The caller vouches for the range and keeps it valid until ``deregister_memory``.
            device_id: GPU ordinal, -1 for host memory, or for whatever GPU the memory is on.
            mem_loc: where it lies; of ``Unknown`` memory the GPU drivers are asked.

        Returns:
            The description that peers need. The same range may be registered more than once.

        Raises:
            ValueError: ``ptr`` is 0; or the driver knows better: the memory is of another GPU, or of none, or the range
                leaves its allocation.
            UnsupportedError: it is said to be GPU memory, and there is no GPU here.
            TypeError: an argument has the wrong type or a number does not fit.
        """
        return self._engine.RegisterMemory(ptr, size, device_id, mem_loc)

    def register_torch_tensor(self, tensor: torch.Tensor) -> MemoryDesc:
        """Make a tensor's storage usable for transfers; the caller keeps the tensor alive.

        Raises:
            RuntimeError: the tensor is not contiguous.
            KeyError: it lies neither on a CPU nor on a CUDA or ROCm device.
        """
        if not tensor.is_contiguous():
            raise RuntimeError("input tensor must be contiguous")
        loc = TORCH_DEVICE_TYPE_MAP[tensor.device.type]
        device = tensor.device.index
        size = tensor.nelement() * tensor.element_size()
        return self.register_memory(tensor.data_ptr(), size, -1 if device is None else device, loc)

    @also(desc="mem_desc")
    def deregister_memory(self, mem_desc: MemoryDesc) -> None:
        """Withdraw a memory and the sessions made with it; nothing happens if it is not known."""
        self._engine.DeregisterMemory(mem_desc)

    def allocate_transfer_uid(self) -> int:
        """Return the next transfer number of the engine; numbers start at 0 and are never reused."""
        return self._engine.AllocateTransferUniqueId()

    def read(
        self,
        local: MemoryDesc,
        local_off: int,
        remote: MemoryDesc,
        remote_off: int,
        size: int,
        uid: int,
        /,
        *,
        deadline_ms: int | None = None,
        tag: str | None = None,
        after: Any = None,
    ) -> TransferStatus:
        """Copy ``size`` bytes from the remote to the local memory; returns at once with the transfer's status.

        ``deadline_ms``, ``tag`` and ``after`` are those of :class:`IOEngineSession`; the backend's deadline holds where
        none is given. So is the limit of ``MORI_IO_MAX_PENDING``, at which the call waits for room.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the deadline or tag is invalid, or the event was never recorded.
            RuntimeError: the pair cannot be set up: peer or local memory not registered, peer not reachable.
        """
        pair = self._pair(local, remote)
        return self._post_one(pair.handle, False, local_off, remote_off, size, uid, deadline_ms, tag, after)

    def write(
        self,
        local: MemoryDesc,
        local_off: int,
        remote: MemoryDesc,
        remote_off: int,
        size: int,
        uid: int,
        /,
        *,
        deadline_ms: int | None = None,
        tag: str | None = None,
        after: Any = None,
    ) -> TransferStatus:
        """Copy ``size`` bytes from the local to the remote memory; returns, waits and raises as :meth:`read`.

        At most ``MORI_IO_MAX_PENDING`` transfers to one peer are pending.
        """
        pair = self._pair(local, remote)
        return self._post_one(pair.handle, True, local_off, remote_off, size, uid, deadline_ms, tag, after)

    def batch_read(
        self,
        locals: Sequence[MemoryDesc],
        local_offs: Sequence[Sequence[int]],
        remotes: Sequence[MemoryDesc],
        remote_offs: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
        uids: Sequence[int],
        /,
        *,
        deadline_ms: int | None = None,
        tag: str | None = None,
        after: Any = None,
    ) -> list[TransferStatus]:
        """Copy many blocks of many memory pairs from the remote to the local side.

        Args:
            locals: the local memory of each pair.
            local_offs: for each pair, where its blocks go.
            remotes: the remote memory of each pair.
            remote_offs: for each pair, where its blocks come from.
            sizes: for each pair, the lengths of its blocks.
            uids: the transfer number of each pair.
            deadline_ms: of each transfer; None takes the backend's.
            tag: of each transfer, 1 to 64 bytes of UTF-8; None is none.
            after: an event or a stream of a GPU for which all of them wait; None waits for nothing.

        Returns:
            One status for each pair. A pair that cannot be set up or has bad bounds gets a failed status; the
            other pairs are not affected. At the limit of ``MORI_IO_MAX_PENDING``, see :class:`IOEngineSession`, the
            call waits for room.

        Raises:
            ValueError: the six sequences have different lengths, or an option is none. Nothing was submitted.
            TypeError: an argument has the wrong type. Nothing was submitted.
        """
        return self._batch(
            False, (deadline_ms, tag, after), locals, local_offs, remotes, remote_offs, sizes, uids
        )

    def batch_write(
        self,
        locals: Sequence[MemoryDesc],
        local_offs: Sequence[Sequence[int]],
        remotes: Sequence[MemoryDesc],
        remote_offs: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
        uids: Sequence[int],
        /,
        *,
        deadline_ms: int | None = None,
        tag: str | None = None,
        after: Any = None,
    ) -> list[TransferStatus]:
        """Copy many blocks of many memory pairs from the local to the remote side; see :meth:`batch_read`.

        The limit of ``MORI_IO_MAX_PENDING`` holds here, too.
        """
        return self._batch(
            True, (deadline_ms, tag, after), locals, local_offs, remotes, remote_offs, sizes, uids
        )

    @also(local="local_mem", remote="remote_mem")
    def create_session(self, local_mem: MemoryDesc, remote_mem: MemoryDesc) -> IOEngineSession | None:
        """Prepare transfers between two memories.

        Args:
            local_mem: a memory of this engine; an unpacked copy of its description serves as well.
            remote_mem: a memory of a registered peer, of another engine here, or of this engine.

        Returns:
            The session, or None when no backend can serve the pair.
        """
        session = self._engine.CreateSession(local_mem, remote_mem)
        return None if session is None else IOEngineSession(session)

    @also(uid="transfer_uid")
    def pop_inbound_transfer_status(self, remote_key: str, transfer_uid: int) -> TransferStatus | None:
        """Tell whether a peer's transfer has arrived here.

        Args:
            remote_key: key of the engine that submitted the transfer.
            transfer_uid: its number there.

        Returns:
            A status with SUCCESS once all bytes are here, again and again; None before, with notifications disabled
            on either side, and for unknown keys.
        """
        status = TransferStatus()
        return status if self._engine.PopInboundTransferStatus(remote_key, transfer_uid, status) else None

    def wait_all(self, statuses: Sequence[TransferStatus | None], timeout_ms: int = -1) -> StatusCode:
        """Wait for transfers, without the GIL; entries that are None are skipped.

        Args:
            statuses: what to wait for. They are not consumed.
            timeout_ms: one deadline for all; 0 polls once, a negative value waits without limit.

        Returns:
            SUCCESS when all succeeded (and for an empty list), the code of the first failure found, or IN_PROGRESS when
            time runs out. A status that was never submitted counts with its INIT.
        """
        return self._engine.WaitAll(statuses, timeout_ms)

    def _batch(self, is_write: bool, extra: _Options, *columns: Any) -> list[TransferStatus]:
        options(*extra)
        lengths = [len(column) for column in columns]
        if len(set(lengths)) > 1:
            names = ("locals", "local_offs", "remotes", "remote_offs", "sizes", "uids")
            counts = ", ".join(f"{name} has {n}" for name, n in zip(names, lengths, strict=True))
            raise ValueError(f"batch lists must have one entry for each pair: {counts}")
        rows = list(zip(*columns, strict=True))
        if len(rows) > 1:
            rows = [_checked(row) for row in rows]
        return [self._submit(extra, is_write, *row) for row in rows]

    def _submit(
        self,
        extra: _Options,
        is_write: bool,
        local: MemoryDesc,
        local_offs: Any,
        remote: MemoryDesc,
        remote_offs: Any,
        sizes: Any,
        uid: Any,
    ) -> TransferStatus:
        gated = extra[2] is not None
        try:
            pair = self._pair(local, remote)
            if gated:  # a GPU that fails is the transfer's failure, like a pair that cannot be set up
                return self._post(pair.handle, is_write, local_offs, remote_offs, sizes, uid, *extra)
        except MoriError as err:
            status: TransferStatus = self._failed_status(int(_code_of(err)), str(err))
            return status
        return self._post(pair.handle, is_write, local_offs, remote_offs, sizes, uid, *extra)


_Options = tuple[int | None, str | None, Any]
"""deadline_ms, tag and after, as a caller gave them."""


def _code_of(err: MoriError) -> StatusCode:
    if isinstance(err, NotFoundError):
        return StatusCode.ERR_NOT_FOUND
    if isinstance(err, BadStateError):
        return StatusCode.ERR_BAD_STATE
    if isinstance(err, ConnectionFailedError):
        return StatusCode.ERR_RDMA_OP
    if isinstance(err, ValueError):
        return StatusCode.ERR_INVALID_ARGS
    raise err


def _checked(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert one pair's arguments, so that a wrong type in the last pair shows before the first is submitted."""
    local, local_offs, remote, remote_offs, sizes, uid = row
    for desc in (local, remote):
        if not isinstance(desc, MemoryDesc):
            raise TypeError(f"batch lists take MemoryDesc, got {desc!r}")
    return local, _uint64s(local_offs), remote, _uint64s(remote_offs), _uint64s(sizes), _uint64s([uid])[0]


def _uint64s(values: Any) -> array[int]:
    """Return a sequence of integers as 64-bit words, by the rules of the native conversion."""
    if isinstance(values, (str, bytes, bytearray, dict)) or not hasattr(values, "__getitem__"):
        raise TypeError(f"expected a sequence of integers, got {type(values).__name__}")
    try:
        return array("Q", values)
    except OverflowError:
        raise TypeError("expected integers from 0 to 2**64-1") from None
