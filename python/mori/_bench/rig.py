# SPDX-License-Identifier: MIT
"""The two sides of a benchmark and the session between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mori.io import IOEngineSession

from .cases import BUFFER_BYTES, MIB
from .process import Remote
from .raw_side import connect_raw
from .side import Path, Side


class PathUnavailable(RuntimeError):
    """The machine does not give the path that a case measures."""


@dataclass(frozen=True)
class Effort:
    """How much work one sample does; `quick` is for seeing that everything runs, not for figures."""

    stream_bytes: int = 256 * MIB
    pings: int = 1000
    submits: int = 25
    polls: int = 200_000
    idle_s: float = 1.0
    quick: bool = False

    @staticmethod
    def of(quick: bool) -> Effort:
        return Effort(MIB, 20, 3, 2_000, 0.1, True) if quick else Effort()

    def rounds(self, size: int) -> int:
        return max(1, min(64, self.stream_bytes // size))

    def count(self, entries: int) -> int:
        return min(entries, 5_000) if self.quick else entries


class Rig:
    """This process's side, a spawned other side, and a session between their engines on one path at a time."""

    def __init__(self, effort: Effort, *, notifications: bool = True) -> None:
        self.effort, self._notifications = effort, notifications
        self.here = Side(BUFFER_BYTES)
        self.there = Remote("bench-peer", f"{Side.__module__}:{Side.__name__}", BUFFER_BYTES)
        self._session: IOEngineSession | None = None
        self._path: Path | None = None
        self._filled: bool | None = None
        try:
            self.pid, self.base = self.there.call("where")
            connect_raw(self.here, self.there)
        except BaseException:
            self.there.close()
            raise

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *failure: Any) -> None:
        try:
            if failure[0] is None:
                self.use(None)
            else:  # the other side may be in the middle of a call
                self.here.shut()
        finally:
            self.there.__exit__(*failure)

    def use(self, path: Path | None) -> None:
        """Opens engines and a session on the path, after closing those of another one."""
        if path == self._path:
            return
        self._session = None
        self.here.shut()
        if self._path is not None:
            self.there.call("shut")
        self._path = None
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        card = self.there.call("open", path, self._notifications)
        self._path = path
        self.there.call("meet", self.here.open(path, self._notifications))
        self.here.meet(card)
        self._session = self.here.session(card)
        told = self._session.describe()
        transport, _, how = told["path"].partition("/")
        if transport != path or (path == "shm" and how == "stream"):
            raise PathUnavailable(f"the session runs on {told['path']}, not on {path}: {'; '.join(told['reasons'])}")

    @property
    def session(self) -> IOEngineSession:
        if self._session is None:
            raise PathUnavailable("no path is in use")
        return self._session

    def source_holds_pattern(self, *, read: bool) -> None:
        """Fills the side that the next transfers copy from."""
        if self._filled is read:
            return
        if read:
            self.there.call("fill")
        else:
            self.here.fill()
        self._filled = read
