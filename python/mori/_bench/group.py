# SPDX-License-Identifier: MIT
"""Processes of this host with mori.shmem among them, each serving the same methods."""

from __future__ import annotations

import os
from typing import Any

from .process import Remote


class Member:
    """What the services of a group have in common: it is PE `me` of `size`, with a symmetric heap of `heap` bytes."""

    def __init__(self, me: int, size: int, heap: int) -> None:
        self.me, self.size = me, size
        # A PE that is gone ends the waits of the others before their caller's patience does.
        os.environ.update(MORI_SHMEM_HEAP_SIZE=str(heap), MORI_BOOTSTRAP_TIMEOUT="60", MORI_SHMEM_TIMEOUT="60")
        os.environ["MORI_SHMEM_DEVICE"] = "host"  # also where there are GPUs; those that measure these say so

    def unique_id(self) -> bytes:
        from mori import shmem

        return shmem.shmem_get_unique_id()

    def join(self, unique_id: bytes) -> None:
        from mori import shmem

        if shmem.shmem_init_attr(shmem.MORI_SHMEM_INIT_WITH_UNIQUEID, self.me, self.size, unique_id) != 0:
            raise RuntimeError("mori.shmem did not start; its log says why")

    def paths(self) -> list[str]:
        """How each PE is reached from here."""
        from mori import shmem

        return [peer["path"] for peer in shmem.shmem_describe()["peers"]]

    def leave(self) -> None:
        from mori import shmem

        shmem.shmem_finalize()


class Group:
    """`size` processes that serve a Member, by "module:Class"; further arguments of it follow `heap`."""

    def __init__(self, factory: str, size: int, heap: int, *args: Any) -> None:
        self.size = size
        self._all: list[Remote] = []
        try:
            for me in range(size):
                self._all.append(Remote(f"PE {me}", factory, me, size, heap, *args))
            self.each("join", self.one(0, "unique_id"))
        except BaseException as err:
            self.__exit__(type(err), err, None)
            raise

    def one(self, pe: int, method: str, *args: Any) -> Any:
        """Call a method in one of the processes."""
        return self._all[pe].call(method, *args)

    def each(self, method: str, *args: Any) -> list[Any]:
        """Call a method in all processes at once."""
        for remote in self._all:
            remote.begin(method, *args)
        return [remote.result() for remote in self._all]

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *failure: Any) -> None:
        try:
            if failure[0] is None:
                self.each("leave")
        finally:
            for remote in self._all:
                remote.__exit__(*failure)
