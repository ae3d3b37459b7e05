# SPDX-License-Identifier: MIT
"""The raw limit of shared memory: process_vm_readv and process_vm_writev in a plain loop, iovecs made beforehand."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

IOV_MAX = 1024
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_VECTOR = [
    ctypes.c_int,
    ctypes.POINTER(_Iovec),
    ctypes.c_ulong,
    ctypes.POINTER(_Iovec),
    ctypes.c_ulong,
    ctypes.c_ulong,
]
for _name in ("process_vm_readv", "process_vm_writev"):
    getattr(_libc, _name).argtypes = _VECTOR
    getattr(_libc, _name).restype = ctypes.c_ssize_t


def allow_peers() -> None:
    """Lets other processes of this user reach this one's memory where the Yama module restricts it to descendants."""
    _libc.prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)


class Copies:
    """Blocks of this process and of process `pid`, as iovecs: `entries_per_call` blocks go into one system call."""

    def __init__(
        self, pid: int, here: Sequence[int], there: Sequence[int], size: int, *, entries_per_call: int = 1
    ) -> None:
        if len(here) != len(there):
            raise ValueError(f"{len(here)} addresses here, {len(there)} there")
        if not 1 <= entries_per_call <= IOV_MAX:
            raise ValueError(f"entries_per_call must be from 1 to {IOV_MAX}, got {entries_per_call}")
        self.total = len(here) * size
        self._calls = []
        for first in range(0, len(here), entries_per_call):
            part = slice(first, first + entries_per_call)
            local, remote = _iovecs(here[part], size), _iovecs(there[part], size)
            self._calls.append((pid, local, len(local), remote, len(remote), 0))

    def read(self) -> None:
        """Copies every block from there to here."""
        self._run(_libc.process_vm_readv, "process_vm_readv")

    def write(self) -> None:
        """Copies every block from here to there."""
        self._run(_libc.process_vm_writev, "process_vm_writev")

    def _run(self, call: object, name: str) -> None:
        moved = 0
        for args in self._calls:
            n = call(*args)  # type: ignore[operator]
            if n < 0:
                code = ctypes.get_errno()
                raise OSError(code, f"{name} of process {args[0]}: {os.strerror(code)}")
            moved += n
        if moved != self.total:
            raise OSError(f"{name} moved {moved} of {self.total} bytes")


def _iovecs(addresses: Sequence[int], size: int) -> ctypes.Array[_Iovec]:
    return (_Iovec * len(addresses))(*(_Iovec(address, size) for address in addresses))
