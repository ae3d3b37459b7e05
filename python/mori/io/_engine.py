# SPDX-License-Identifier: MIT
"""IOEngine: registers memory, knows its peers and transfers bytes."""

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
"""The memory location of each torch device type."""


class IOEngine:
    """Transfers blocks of memory to and from engines of this process, this host or other hosts.

    Args:
        key: a name, unique among the engines that talk to each other.
        config: where the engine listens; copied.

    Typical use:

    1. Make an engine, call :meth:`create_backend` and register memory.
    2. Exchange the packed descriptions of engines and memories with the peer, by any means.
    3. Call :meth:`register_remote_engine`.
    4. Read and write. Use sessions for pairs of memories that are used often.

    Offsets and sizes are bytes.

    The caller owns the memory and keeps it valid until it is deregistered or the engine is closed.
    The engine closes on :meth:`close`, at the end of a ``with`` block, when its last reference is
    dropped, or at interpreter exit. Sessions hold a reference to their engine. Closing fails the
    transfers that are in flight; their statuses stay readable.

    All methods may be called from any thread. In a child forked after the engine was made, every
    call raises :class:`mori.io.ForkError`.
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
        """Stop the engine and fail the transfers in flight.

        Closing again does nothing. Other calls on a closed engine raise RuntimeError.
        """
        self._engine.Close()

    def __enter__(self) -> IOEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_engine_desc(self) -> EngineDesc:
        """Return the description of this engine for peers.

        It has the port that was bound once a backend exists.
        """
        return self._engine.GetEngineDesc()

    def fileno(self) -> int:
        """Return a file descriptor for epoll that becomes readable when transfers end.

        ``os.read(engine.fileno(), 8)`` clears it until the next transfer ends. Check the statuses
        after that read. The engine owns the descriptor: do not close it. In asyncio,
        ``await status`` is simpler.
        """
        return self._engine.FileNo()

    def describe(self) -> dict[str, Any]:
        """Return the engine's state: backends, peers with their paths and why, and counters."""
        return self._engine.Describe()

    def stats(self) -> dict[str, Any]:
        """Return statistics of the engine's transfers. They are always on and cost less than 1 %.

        Names end in their unit. Totals start when the engine is made::

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

        * ``peers`` and their ``paths`` stay listed after a connection closes. ``known`` and
          ``open`` are the current state.
        * ``transfers`` counts successes and ``failed`` counts failures; ``failures`` has them by
          code. ``canceled`` ones are included in ``failed``.
        * ``bytes`` are counted as they move.
        * ``replays`` counts transfers that continued over another path when this one broke.
        * ``altered`` counts ops sent again because their checksum differed.
        * ``packed`` counts payloads that were compressed.
        * ``bytes_per_s_1s`` and ``bytes_per_s_10s`` are averages over the last 1 and 10 seconds.
        * ``latency`` is the time from submission until success is reported, for successes only.
          Buckets are powers of 2 (``below_us`` None: no bound), so quantiles are accurate to a
          factor of 2.
        * ``stuck`` lists at most 16 transfers that have been in flight for more than 1 s.
        * ``slowest`` lists the 16 slowest of the last 4096 that ended.
        * ``tags`` counts the tags that are being sent to peers.

        An entry of ``stuck`` or ``slowest`` has ``peer``, ``path``, ``kind`` ("read" or "write"),
        ``uid``, ``tag`` ("" is none), ``code``, ``stage``, ``bytes``, ``bytes_done``, ``ops``,
        ``replays`` and ``start_s`` (since 1970). ``first_op_us``, ``last_op_us`` (0: not yet) and
        ``took_us`` are times since its start.

        Raises:
            RuntimeError: the engine is closed.
        """
        return self._engine.Stats()

    def dump_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return a trace of the last 4096 transfers and those in flight, as JSON for Perfetto.

        Open it at https://ui.perfetto.dev. Each peer and path has a track, or several where
        transfers overlap. A transfer is a slice with its tag, uid, bytes, code and replays. It
        contains one slice for each stage: until its first op is done, until its last op is done,
        and until its end is reported.

        Args:
            path: file to write the trace to as well; None writes no file.

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
        """Return the tag of a peer's transfer, as passed to ``session.write(..., tag="req-7")``.

        Args:
            remote_key: key of the engine that submitted the transfer.
            uid: its number there.

        Returns:
            The tag, on every call. None if the transfer has no tag or the tag has not arrived yet,
            which may be some milliseconds after the bytes. The last 16384 tags of each registered
            peer are kept.

        Raises:
            TypeError: an argument has the wrong type.
            RuntimeError: the engine is closed.
        """
        return self._engine.InboundTag(remote_key, uid)

    def create_backend(self, type: BackendType, config: BackendConfig | None = None) -> None:
        """Start a backend, which moves bytes over one kind of transport.

        Args:
            type: ``BackendType.RDMA`` works everywhere. On a host without a NIC it uses shared
                memory, TCP and copies between GPUs of one host. ``BackendType.XGMI`` only copies
                between GPUs of one host, without a network.
            config: None takes the defaults. RDMA and TCP take an ``RdmaBackendConfig``.

        If a backend of this type exists, the call makes no second one and logs a warning.

        Raises:
            NotImplementedError: ``type`` is not one of the four backends. It is compared by
                identity.
            TypeError: ``config`` belongs to another backend.
            RuntimeError: values of ``config`` contradict each other, the port is taken, or this
                host lacks the hardware.
        """
        self._engine.CreateBackend(type, config)

    def remove_backend(self, type: BackendType) -> None:
        """Stop the backend. Does nothing if it does not exist."""
        self._engine.RemoveBackend(type)

    @also(desc="engine_desc")
    def register_remote_engine(self, engine_desc: EngineDesc) -> None:
        """Register a peer with every existing backend. Sends nothing.

        A later description with the same key replaces the earlier one.
        """
        self._engine.RegisterRemoteEngine(engine_desc)

    @also(desc="engine_desc")
    def deregister_remote_engine(self, engine_desc: EngineDesc) -> None:
        """Remove a peer. Does nothing if the peer is unknown."""
        self._engine.DeregisterRemoteEngine(engine_desc)

    def register_memory(self, ptr: int, size: int, device_id: int, mem_loc: MemoryLocationType) -> MemoryDesc:
        """Register memory for transfers.

        Args:
            ptr: address of the first byte.
            size: length in bytes. The caller guarantees that the range is valid until
                ``deregister_memory``.
            device_id: GPU ordinal; -1 for host memory, or to let the driver find the GPU.
            mem_loc: CPU or GPU; for ``Unknown`` the GPU drivers are asked.

        Returns:
            The description that peers need. The same range may be registered more than once.

        Raises:
            ValueError: ``ptr`` is 0; or the driver reports that the memory is on another GPU, on no
                GPU, or that the range exceeds its allocation.
            UnsupportedError: ``mem_loc`` is GPU and this host has no GPU.
            TypeError: an argument has the wrong type, or a number is out of range.
        """
        return self._engine.RegisterMemory(ptr, size, device_id, mem_loc)

    def register_torch_tensor(self, tensor: torch.Tensor) -> MemoryDesc:
        """Register a tensor's storage for transfers. The caller keeps the tensor alive.

        Raises:
            RuntimeError: the tensor is not contiguous.
            KeyError: the tensor is neither on a CPU nor on a CUDA or ROCm device.
        """
        if not tensor.is_contiguous():
            raise RuntimeError("input tensor must be contiguous")
        loc = TORCH_DEVICE_TYPE_MAP[tensor.device.type]
        device = tensor.device.index
        size = tensor.nelement() * tensor.element_size()
        return self.register_memory(tensor.data_ptr(), size, -1 if device is None else device, loc)

    @also(desc="mem_desc")
    def deregister_memory(self, mem_desc: MemoryDesc) -> None:
        """Deregister a memory and invalidate its sessions. Does nothing if it is unknown."""
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
        """Copy ``size`` bytes from the remote to the local memory; return the status at once.

        ``deadline_ms``, ``tag`` and ``after`` are described at :class:`IOEngineSession`. Without a
        deadline the backend's applies. The call waits while ``MORI_IO_MAX_PENDING`` transfers are
        pending.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the deadline or tag is invalid, or the event was never recorded.
            RuntimeError: the pair cannot be set up: the peer or the local memory is not registered,
                or the peer is not reachable.
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
        """Copy ``size`` bytes from the local to the remote memory; otherwise like :meth:`read`.

        The call waits while ``MORI_IO_MAX_PENDING`` transfers are pending.
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
            deadline_ms: deadline of each transfer; None takes the backend's.
            tag: tag of each transfer, 1 to 64 bytes of UTF-8; None means no tag.
            after: GPU event or stream that all transfers wait for; None means no wait.

        Returns:
            One status for each pair. A pair that cannot be set up or has bad bounds gets a failed
            status; the other pairs are not affected. While ``MORI_IO_MAX_PENDING`` transfers are
            pending, the call waits; see :class:`IOEngineSession`.

        Raises:
            ValueError: the six sequences have different lengths, or an option is invalid. Nothing
                was submitted.
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

        The limit ``MORI_IO_MAX_PENDING`` applies as there.
        """
        return self._batch(
            True, (deadline_ms, tag, after), locals, local_offs, remotes, remote_offs, sizes, uids
        )

    @also(local="local_mem", remote="remote_mem")
    def create_session(self, local_mem: MemoryDesc, remote_mem: MemoryDesc) -> IOEngineSession | None:
        """Prepare transfers between two memories.

        Args:
            local_mem: a memory of this engine, or an unpacked copy of its description.
            remote_mem: a memory of a registered peer, of another engine here, or of this engine.

        Returns:
            The session, or None when no backend can serve the pair.
        """
        session = self._engine.CreateSession(local_mem, remote_mem)
        return None if session is None else IOEngineSession(session)

    @also(uid="transfer_uid")
    def pop_inbound_transfer_status(self, remote_key: str, transfer_uid: int) -> TransferStatus | None:
        """Report whether a peer's transfer has arrived here.

        Args:
            remote_key: key of the engine that submitted the transfer.
            transfer_uid: its number there.

        Returns:
            A status with SUCCESS, on every call, once all bytes have arrived. None before that, for
            unknown keys, and if notifications are disabled on either side.
        """
        status = TransferStatus()
        return status if self._engine.PopInboundTransferStatus(remote_key, transfer_uid, status) else None

    def wait_all(self, statuses: Sequence[TransferStatus | None], timeout_ms: int = -1) -> StatusCode:
        """Wait for transfers, with the GIL released.

        Args:
            statuses: the transfers to wait for. None entries are skipped. The statuses stay usable.
            timeout_ms: one timeout for all, in milliseconds; 0 polls once, a negative value waits
                without limit.

        Returns:
            SUCCESS when all succeeded (and for an empty list), the code of the first failure found,
            or IN_PROGRESS on timeout. A status that was never submitted counts as INIT.
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
            if gated:  # a GPU error fails the transfer, like a pair that cannot be set up
                return self._post(pair.handle, is_write, local_offs, remote_offs, sizes, uid, *extra)
        except MoriError as err:
            status: TransferStatus = self._failed_status(int(_code_of(err)), str(err))
            return status
        return self._post(pair.handle, is_write, local_offs, remote_offs, sizes, uid, *extra)


_Options = tuple[int | None, str | None, Any]
"""deadline_ms, tag and after, unchecked."""


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
    """Convert one pair's arguments.

    All pairs are converted before the first is submitted, so a wrong type in any pair submits
    nothing.
    """
    local, local_offs, remote, remote_offs, sizes, uid = row
    for desc in (local, remote):
        if not isinstance(desc, MemoryDesc):
            raise TypeError(f"batch lists take MemoryDesc, got {desc!r}")
    return local, _uint64s(local_offs), remote, _uint64s(remote_offs), _uint64s(sizes), _uint64s([uid])[0]


def _uint64s(values: Any) -> array[int]:
    """Convert a sequence of integers to 64-bit words; accept what the native conversion accepts."""
    if isinstance(values, (str, bytes, bytearray, dict)) or not hasattr(values, "__getitem__"):
        raise TypeError(f"expected a sequence of integers, got {type(values).__name__}")
    try:
        return array("Q", values)
    except OverflowError:
        raise TypeError("expected integers from 0 to 2**64-1") from None
