# SPDX-License-Identifier: MIT
"""The closed sets of mori.io. The integer values are part of the public contract and of the wire format."""

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
    """A way of moving bytes; the argument of :meth:`mori.io.IOEngine.create_backend`."""

    Unknown = 0
    XGMI = 1
    """GPU to GPU inside one host, by copies between them (NVLink, xGMI, PCIe)."""
    RDMA = 2
    """Any memory to any memory. Without a NIC: GPU copies and shared memory inside the host, TCP between hosts."""
    TCP = 3
    """Any memory to any memory, over TCP sockets only."""
    FABRIC = 4
    """GPU to GPU across hosts of one scale-up domain."""


class MemoryLocationType(_NativeEnum):
    """Where a registered memory lies."""

    Unknown = 0
    CPU = 1
    GPU = 2


class StatusCode(_NativeEnum):
    """The state of a transfer. Values above 10 are failures and final."""

    SUCCESS = 0
    INIT = 1
    """Made, and not submitted."""
    IN_PROGRESS = 2
    ERR_INVALID_ARGS = 11
    """Out of bounds, list lengths differ, an entry is too large: nothing was transferred."""
    ERR_NOT_FOUND = 12
    """The peer, or a memory, is not known."""
    ERR_RDMA_OP = 13
    """The transfer failed on its way: the peer died, a path broke, a deadline passed."""
    ERR_BAD_STATE = 14
    """No backend can serve the pair, or the engine is closed."""
    ERR_GPU_OP = 15
    """A GPU copy failed."""
    ERR_BAD_ADDRESS = 16
    """Memory of the transfer is not mapped, here or at the peer: it was freed. Never retried."""


class PollCqMode(_NativeEnum):
    """How a backend learns of completions."""

    POLLING = 0
    EVENT = 1
