# SPDX-License-Identifier: MIT
"""Two processes with blocks on a GPU each, a session between them, and memory of this process for raw copies."""

from __future__ import annotations

import os
from typing import Any

from mori import device
from mori._errors import MoriError
from mori.io import IOEngineSession

from ..process import Remote, RemoteError
from ..raw_side import connect_raw
from ..rig import PathUnavailable
from .cases import GPUCase, Place, Via
from .chosen import GPUs
from .copies import Copies
from .side import GPUSide, Pool

_PATHS: dict[Via, str] = {"XGMI": "p2p", "RDMA": "p2p", "TCP": "tcp"}
_BLOCKS = "MORI_P2P_BLOCKS"


class GPURig:
    """This process's side, a spawned other side, and what a case needs of them, one case at a time."""

    def __init__(self, gpus: GPUs) -> None:
        self._gpus = gpus
        first, second = gpus.pair
        self.here = GPUSide(first)
        self.there = Remote("bench-peer", f"{GPUSide.__module__}:{GPUSide.__name__}", second)
        self.raw: device.DeviceMemory | device.HostMemory | None = None
        self.path = self.link = ""
        self._session: IOEngineSession | None = None
        try:
            self.copies = Copies(first, second)
            connect_raw(self.here, self.there)
        except BaseException:
            self.there.close()
            raise

    def __enter__(self) -> GPURig:
        return self

    def __exit__(self, *failure: Any) -> None:
        try:
            self._clear(ended=failure[0] is not None)
        finally:
            self.there.__exit__(*failure)

    def use(self, case: GPUCase) -> None:
        """Makes blocks, raw memory and a session for the case, after ending those of another one.

        Raises PathUnavailable when either process cannot, so that other cases may still run.
        """
        self._clear()
        try:
            self._make(case)
        except RemoteError as err:
            if not err.trace:  # the process is gone
                raise
            raise PathUnavailable(str(err)) from err
        except MoriError as err:
            raise PathUnavailable(str(err)) from err

    def _make(self, case: GPUCase) -> None:
        if case.copy_blocks is not None:
            os.environ[_BLOCKS] = str(case.copy_blocks)
        count = case.entries * case.batches
        self.here.make(Pool("gpu", case.size, count))
        self.there.call("make", Pool(case.there, case.size, count))
        if case.via != "TCP":
            self.raw = self._raw(case.there, case.size * count)
        self._open(case.via)
        if case.read:
            self.there.call("fill")
        else:
            self.here.fill()

    def _raw(self, place: Place, size: int) -> device.DeviceMemory | device.HostMemory:
        first, second = self._gpus.pair
        return device.DeviceMemory(size, second) if place == "gpu" else device.HostMemory(size, first)

    def _open(self, via: Via) -> None:
        card = self.there.call("open", via)
        self.there.call("meet", self.here.open(via))
        self.here.meet(card)
        self._session = self.here.session(card)
        told = self._session.describe()
        self.path, self.link = told["path"], told["link"]
        if self.path.partition("/")[0] != _PATHS[via]:
            raise PathUnavailable(
                f"the session runs on {self.path}, not on {_PATHS[via]}: {'; '.join(told['reasons'])}"
            )

    def _clear(self, *, ended: bool = False) -> None:
        """`ended`: the other side may be in the middle of a call, and is not asked."""
        self._session = None
        self.here.drop()
        if not ended:
            self.there.call("drop")
        if self.raw is not None:
            self.raw.close()
        self.raw = None
        os.environ.pop(_BLOCKS, None)

    @property
    def session(self) -> IOEngineSession:
        assert self._session is not None
        return self._session
