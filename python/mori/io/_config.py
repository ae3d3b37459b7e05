# SPDX-License-Identifier: MIT
"""Configuration of an engine and of its backends.

Configurations are plain objects. All attributes can be read and written; a write of the wrong type
or out of range raises TypeError. The engine copies a configuration, so later changes have no effect
on it. ``create_backend`` refuses values that contradict each other. There, environment variables
also override some fields; ``mori env`` lists them.
"""

from __future__ import annotations

import json
import operator
from typing import Any, Generic, TypeVar, overload

from ._enums import PollCqMode

T = TypeVar("T")


class _Field(Generic[T]):
    """An attribute with checked writes. The instance stores the value under the same name."""

    name: str

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, obj: None, owner: type) -> _Field[T]: ...
    @overload
    def __get__(self, obj: object, owner: type) -> T: ...
    def __get__(self, obj: object | None, owner: type) -> T | _Field[T]:
        if obj is None:
            return self
        value: T = obj.__dict__[self.name]
        return value

    def __set__(self, obj: object, value: T) -> None:
        obj.__dict__[self.name] = self.check(obj, value)

    def check(self, obj: object, value: T) -> T:
        raise NotImplementedError

    def refuse(self, obj: object, value: object, wanted: str) -> TypeError:
        return TypeError(f"{type(obj).__name__}.{self.name} must be {wanted}, got {value!r}")


class _Int(_Field[int]):
    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def check(self, obj: object, value: int) -> int:
        wanted = f"an int from {self.low} to {self.high}"
        try:
            number = operator.index(value)
        except TypeError:
            raise self.refuse(obj, value, wanted) from None
        if not self.low <= number <= self.high:
            raise self.refuse(obj, value, wanted)
        return number


class _Typed(_Field[T]):
    def __init__(self, kind: type[T]) -> None:
        self.kind = kind

    def check(self, obj: object, value: T) -> T:
        if not isinstance(value, self.kind):
            raise self.refuse(obj, value, f"a {self.kind.__name__}")
        return value


def _int32() -> _Int:
    return _Int(-(2**31), 2**31 - 1)


class _Config:
    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"


class IOEngineConfig(_Config):
    """Where an engine listens.

    Args:
        host: IPv4 address of the control plane, at which peers reach this engine. Empty means the
            loopback address only.
        port: 0 to 65535. 0 lets the system choose; ``get_engine_desc().port`` returns the port once
            a backend exists.

    Raises:
        TypeError: an argument has the wrong type, or the port is out of range.
    """

    host = _Typed(str)
    port = _Int(0, 65535)

    def __init__(self, host: str = "", port: int = 0) -> None:
        self.host = host
        self.port = port


class BackendConfig(_Config):
    """Base class of all backend configurations. It cannot be instantiated."""

    def __init__(self) -> None:
        raise TypeError("BackendConfig: no constructor defined; create the configuration of one backend instead")

    def to_json(self) -> str:
        """Return the fields as one JSON object, enums as their integers."""
        return json.dumps({name: int(v) if isinstance(v, PollCqMode) else v for name, v in self.__dict__.items()})


class RdmaBackendConfig(BackendConfig):
    """Configuration of ``BackendType.RDMA`` and ``BackendType.TCP``.

    Args:
        qp_per_transfer: queue pairs of each RDMA device that one transfer uses; up to 16.
        post_batch_size: RDMA work requests posted in one call; -1 posts as many as the queue has
            room for.
        num_worker_threads: accepted but ignored: the submitting thread posts.
        poll_cq_mode: while RDMA transfers are pending, EVENT sleeps sooner and POLLING polls longer
            before it sleeps.
        enable_notification: notify the target of each finished transfer; see
            ``pop_inbound_transfer_status``.
        notif_per_qp: notifications that may be outstanding on one queue pair; at least 1 with
            notifications on.
        enable_transfer_chunking: split large entries into chunks of ``chunk_bytes``.
        chunk_bytes: bytes, at least 4096 with chunking on.
        max_chunks_per_transfer: at least 1.
        num_nics_per_transfer: RDMA devices that one transfer uses; 1 to 8.

    Settable as attributes only:

    * ``max_send_wr``, ``max_cqe_num`` and ``max_msg_sge`` are RDMA queue sizes; 0 lets mori choose.
    * ``deadline_ms`` (30000) is the time in milliseconds after which a transfer fails; 0 means
      never.

    See docs/design/rdma.md.
    """

    qp_per_transfer = _int32()
    post_batch_size = _int32()
    num_worker_threads = _int32()
    poll_cq_mode = _Typed(PollCqMode)
    enable_notification = _Typed(bool)
    notif_per_qp = _Int(0, 2**32 - 1)
    enable_transfer_chunking = _Typed(bool)
    chunk_bytes = _Int(0, 2**63 - 1)
    max_chunks_per_transfer = _int32()
    num_nics_per_transfer = _int32()
    max_send_wr = _Int(0, 2**32 - 1)
    max_cqe_num = _Int(0, 2**32 - 1)
    max_msg_sge = _Int(0, 2**32 - 1)
    deadline_ms = _Int(0, 2**31 - 1)

    def __init__(
        self,
        qp_per_transfer: int = 1,
        post_batch_size: int = -1,
        num_worker_threads: int = -1,
        poll_cq_mode: PollCqMode = PollCqMode.POLLING,
        enable_notification: bool = True,
        notif_per_qp: int = 1024,
        enable_transfer_chunking: bool = False,
        chunk_bytes: int = 65536,
        max_chunks_per_transfer: int = 64,
        num_nics_per_transfer: int = 1,
    ) -> None:
        self.qp_per_transfer = qp_per_transfer
        self.post_batch_size = post_batch_size
        self.num_worker_threads = num_worker_threads
        self.poll_cq_mode = poll_cq_mode
        self.enable_notification = enable_notification
        self.notif_per_qp = notif_per_qp
        self.enable_transfer_chunking = enable_transfer_chunking
        self.chunk_bytes = chunk_bytes
        self.max_chunks_per_transfer = max_chunks_per_transfer
        self.num_nics_per_transfer = num_nics_per_transfer
        self.max_send_wr = 0
        self.max_cqe_num = 0
        self.max_msg_sge = 0
        self.deadline_ms = 30000


class TcpBackendConfig(RdmaBackendConfig):
    """Configuration of ``BackendType.TCP``.

    The fields are those of :class:`RdmaBackendConfig`; those about RDMA have no effect.
    """


class _StreamsConfig(BackendConfig):
    num_streams = _int32()
    num_events = _int32()

    def __init__(self, num_streams: int = 64, num_events: int = 64) -> None:
        self.num_streams = num_streams
        self.num_events = num_events


class XgmiBackendConfig(_StreamsConfig):
    """Configuration of ``BackendType.XGMI``: pooled copy streams and events; 0 or less means 64.

    Both are accepted but ignored: mori allocates what it needs for 32 pending copies on each GPU.
    """


class FabricBackendConfig(_StreamsConfig):
    """Configuration of ``BackendType.FABRIC``: pooled copy streams and events; 0 or less is 64."""


def backend_config(value: Any, wanted: type[BackendConfig]) -> str:
    """Return ``value`` as JSON for a backend whose configuration class is ``wanted``.

    Returns an empty string for None, which means the defaults.
    """
    if value is None:
        return ""
    if not isinstance(value, wanted):
        raise TypeError(f"this backend takes a {wanted.__name__}, got {value!r}")
    return value.to_json()
