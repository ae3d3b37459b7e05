# SPDX-License-Identifier: MIT
"""process_vm_readv and process_vm_writev in a plain loop over iovecs that are made beforehand."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence

IOV_MAX = 1024
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
for _name in ("process_vm_readv", "process_vm_writev"):
    _vector = [ctypes.POINTER(_Iovec), ctypes.c_ulong]
    getattr(_libc, _name).argtypes = [ctypes.c_int, *_vector, *_vector, ctypes.c_ulong]
    getattr(_libc, _name).restype = ctypes.c_ssize_t


def allow_peers() -> None:
    """Let processes of this user reach this one's memory where Yama restricts that to descendants.
    """
    _libc.prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)


class Copies:
    """Blocks of this process and of process `pid`. A system call copies `entries_per_call` blocks.
    """

    def __init__(
        self, pid: int, local: Sequence[int], remote: Sequence[int], size: int, *, entries_per_call: int = 1
    ) -> None:
        if len(local) != len(remote):
            raise ValueError(f"{len(local)} local addresses, {len(remote)} remote ones")
        if not 1 <= entries_per_call <= IOV_MAX:
            raise ValueError(f"entries_per_call must be from 1 to {IOV_MAX}, got {entries_per_call}")
        self.total = len(local) * size
        self._calls = []
        for first in range(0, len(local), entries_per_call):
            part = slice(first, first + entries_per_call)
            mine, theirs = _iovecs(local[part], size), _iovecs(remote[part], size)
            self._calls.append((pid, mine, len(mine), theirs, len(theirs), 0))

    def read(self) -> None:
        """Copy every block from the other process to this one."""
        self._run("process_vm_readv")

    def write(self) -> None:
        """Copy every block from this process to the other one."""
        self._run("process_vm_writev")

    def seconds(self, way: str, rounds: int) -> float:
        """Return the duration of one round of "read" or "write"."""
        run = getattr(self, way)
        start = time.perf_counter()
        for _ in range(rounds):
            run()
        return (time.perf_counter() - start) / rounds

    def _run(self, name: str) -> None:
        call, moved = getattr(_libc, name), 0
        for args in self._calls:
            n = call(*args)
            if n < 0:
                code = ctypes.get_errno()
                raise OSError(code, f"{name} of process {args[0]}: {os.strerror(code)}")
            moved += n
        if moved != self.total:
            raise OSError(f"{name} moved {moved} of {self.total} bytes")


def _iovecs(addresses: Sequence[int], size: int) -> ctypes.Array[_Iovec]:
    return (_Iovec * len(addresses))(*(_Iovec(address, size) for address in addresses))
