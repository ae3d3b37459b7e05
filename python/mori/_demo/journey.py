# SPDX-License-Identifier: MIT
"""One run of `mori demo`: start two processes, measure the raw limit, move the cache and verify it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mori.io import BackendType

from .._bench.process import Remote, RemoteError
from .._bench.raw import tcp
from .._bench.report import bar, this_machine
from .cache import Shape
from .outcome import Outcome
from .worker import Mode, Worker

_RAW_PASSES = 3  # before the transfer, and as many after it


@dataclass(frozen=True)
class Request:
    """What the user requested."""

    shape: Shape
    seed: int
    path: str
    mode: Mode
    inflight: int
    spoil: bool
    quiet: bool


class PathRefused(RuntimeError):
    """The engines cannot use the requested path."""


def run(request: Request, say: Callable[[str], None]) -> Outcome:
    """Start both processes, run the steps and end the processes, whatever happens."""
    factory, args = f"{Worker.__module__}:{Worker.__name__}", (request.shape, request.seed)
    with Remote("prefill", factory, "prefill", *args) as prefill, Remote("decode", factory, "decode", *args) as decode:
        say(f"prefill is process {prefill.pid}, decode is process {decode.pid}")
        return _Run(request, prefill, decode).steps()


class _Run:
    def __init__(self, request: Request, prefill: Remote, decode: Remote) -> None:
        self._request, self._prefill, self._decode = request, prefill, decode
        self._raw: dict[str, list[float]] = {}

    def steps(self) -> Outcome:
        request, shape = self._request, self._request.shape
        self._decode.begin("allocate")
        self._prefill.begin("allocate")
        with self._bar(shape.layers, "filling  ", unit=" layers") as progress:
            for _ in self._prefill.events():
                progress.update(1)
        self._decode.result()
        info = self._connect()
        path = str(info["path"])
        self._measure_raw(path)
        self._decode.call("wipe")
        self._transfer()
        mover = self._prefill if request.mode == "write" else self._decode
        times = mover.call("layer_times")
        if request.spoil:
            self._decode.call("spoil", shape.layers // 2)
        wrong, touched = self._verify()
        self._measure_raw(path)
        self._both("close")
        reasons = [str(reason) for reason in info["reasons"]]
        return Outcome(shape, this_machine(), request.mode, path, reasons, times, self._raw, wrong, touched)

    def _bar(self, total: float, what: str, **options: Any) -> Any:
        return bar(total, quiet=self._request.quiet, leave=True, desc=what, **options)

    def _both(self, method: str, *args: object) -> list[Any]:
        """Call a method of both processes at the same time."""
        for process in (self._prefill, self._decode):
            process.begin(method, *args)
        return [process.result() for process in (self._prefill, self._decode)]

    def _connect(self) -> dict[str, Any]:
        """Exchange descriptors and return the description of the sessions."""
        request, port = self._request, self._decode.call("tcp.listen")
        self._decode.begin("tcp.accept")
        self._prefill.call("tcp.dial", port)
        self._decode.result()
        prefill, decode = self._both("open", int(BackendType.TCP if request.path == "tcp" else BackendType.RDMA))
        self._prefill.begin("connect", decode, request.mode)
        self._decode.begin("connect", prefill, request.mode)
        both = self._prefill.result(), self._decode.result()
        info: dict[str, Any] = both[0] or both[1]
        if request.path != "auto" and str(info["path"]).partition("/")[0] != request.path:
            raise PathRefused(f"the path is {info['path']}, not {request.path}: {info['reasons']}")
        return info

    def _measure_raw(self, path: str) -> None:
        if path.startswith("shm/") and not path.endswith("stream"):
            try:
                for _ in range(_RAW_PASSES):
                    self._raw.setdefault("process_vm_readv", []).append(self._decode.call("raw_read"))
            except RemoteError as err:
                print(f"mori demo: no raw limit: {err}", file=sys.stderr)
            return
        size = self._request.shape.region_bytes
        for n in tcp.CONNECTIONS:
            self._decode.begin("tcp.receive", n, size, 1)
            self._decode.event()
            seconds = self._prefill.call("tcp.send", n, size, 1)
            self._raw.setdefault(f"TCP, {tcp.label(n)}", []).append(self._request.shape.cache_bytes / seconds / 1e9)
            self._decode.result()

    def _transfer(self) -> None:
        request, shape = self._request, self._request.shape
        mover = self._prefill if request.mode == "write" else self._decode
        mover.begin("transfer", request.mode, request.inflight)
        style = "{desc}: {percentage:3.0f}%|{bar}| {n:.2f}/{total:.2f} GB [{elapsed}<{remaining}, {rate_fmt}]"
        with self._bar(shape.moved_bytes / 1e9, "moving   ", unit=" GB", bar_format=style) as progress:
            for layers in mover.events():
                progress.update(layers * shape.layer_bytes / 1e9)

    def _verify(self) -> tuple[int, int]:
        """Return the counts of wrong blocks and of overwritten spare blocks."""
        self._decode.begin("verify")
        wrong = touched = 0
        with self._bar(self._request.shape.layers, "verifying", unit=" layers") as progress:
            for bad, spilt in self._decode.events():
                wrong, touched = wrong + bad, touched + spilt
                progress.update(1)
        return wrong, touched
