# SPDX-License-Identifier: MIT
"""process_vm_readv and process_vm_writev in a plain loop over iovecs that are made beforehand."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..harness import Turn
from ..process import Local

IOV_MAX = 1024
_PR_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_vector: list[Any] = [ctypes.POINTER(_Iovec), ctypes.c_ulong]
for _call in (_libc.process_vm_readv, _libc.process_vm_writev):
    _call.argtypes = [ctypes.c_int, *_vector, *_vector, ctypes.c_ulong]
    _call.restype = ctypes.c_ssize_t


def allow_peers() -> None:
    """Let processes of this user reach this one's memory where Yama restricts it to descendants."""
    _libc.prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)


class Copies:
    """Blocks of this process and of process `pid`; a system call copies `per_call`, by default a MiB at least."""

    def __init__(self, pid: int, local: Sequence[int], remote: Sequence[int], size: int, per_call: int = 0) -> None:
        if len(local) != len(remote):
            raise ValueError(f"{len(local)} local addresses, {len(remote)} remote ones")
        self.total = len(local) * size
        self._calls = []
        per_call = per_call or (IOV_MAX if size < 1 << 20 else 1)
        for first in range(0, len(local), per_call):
            part = slice(first, first + per_call)
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


def streams(source: Local, target: Local, size: int, rounds: int) -> dict[str, Turn]:
    """Return turns in which the target pulls, or the source pushes, the blocks that both prepared: GB/s."""

    def turn(side: Local, way: str) -> float:
        return size / float(side.call("copy_seconds", way, rounds)) / 1e9

    return {"process_vm_readv": partial(turn, target, "read"), "process_vm_writev": partial(turn, source, "write")}
