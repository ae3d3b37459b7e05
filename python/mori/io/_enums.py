# SPDX-License-Identifier: MIT
"""The enums of mori.io. The integer values are part of the public API and of the wire format."""

from __future__ import annotations

import enum


class _NativeEnum(enum.Enum):
    """An enum that converts to its integer and never compares equal to one."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __hash__(self) -> int:
        return hash(self.value)


class BackendType(_NativeEnum):
    """A kind of backend; the argument of :meth:`mori.io.IOEngine.create_backend`."""

    Unknown = 0
    XGMI = 1
    """GPU to GPU inside one host, over NVLink, xGMI or PCIe."""
    RDMA = 2
    """Any memory to any memory.

    Without a NIC it uses GPU copies and shared memory inside the host, and TCP between hosts.
    """
    TCP = 3
    """Any memory to any memory, over TCP sockets only."""
    FABRIC = 4
    """GPU to GPU across hosts of one scale-up domain."""


class MemoryLocationType(_NativeEnum):
    """Whether registered memory is on a CPU or a GPU."""

    Unknown = 0
    CPU = 1
    GPU = 2


class StatusCode(_NativeEnum):
    """The state of a transfer. Values above 10 are final failures."""

    SUCCESS = 0
    INIT = 1
    """Created but not submitted."""
    IN_PROGRESS = 2
    ERR_INVALID_ARGS = 11
    """A block is out of bounds or too large, or list lengths differ. Nothing was transferred."""
    ERR_NOT_FOUND = 12
    """The peer or a memory is unknown."""
    ERR_RDMA_OP = 13
    """The transfer failed in flight: the peer died, a path broke or a deadline passed."""
    ERR_BAD_STATE = 14
    """No backend can serve the pair, or the engine is closed."""
    ERR_GPU_OP = 15
    """A GPU copy failed."""
    ERR_BAD_ADDRESS = 16
    """Memory of the transfer was freed, so it is not mapped here or at the peer. Never retried."""


class PollCqMode(_NativeEnum):
    """How a backend waits for completions."""

    POLLING = 0
    EVENT = 1
