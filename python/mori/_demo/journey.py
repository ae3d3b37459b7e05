# SPDX-License-Identifier: MIT
"""One run: two processes are started, meet, measure the raw limit, move the cache and verify it."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

from mori.io import BackendType

from .._bench import raw_tcp
from .._bench.machine import this_machine
from .._bench.process import Remote, RemoteError
from .._bench.progress import Bar, bar
from .cache import Shape
from .outcome import Outcome
from .worker import LayerTime, Mode, Worker

PathChoice = Literal["auto", "shm", "tcp"]


# Before the transfer, and as many after it; the median forgives what else the machine does.
_RAW_PASSES = 3


@dataclass(frozen=True)
class Wish:
    """What the user asked for."""

    shape: Shape
    seed: int
    path: PathChoice
    mode: Mode
    inflight: int
    spoil: bool
    quiet: bool


class PathRefused(RuntimeError):
    """The path that was asked for by name is not the one that the engines can use."""


class Journey:
    """Drives the two workers through the steps of one run."""

    def __init__(self, wish: Wish, prefill: Remote, decode: Remote) -> None:
        self._wish, self._prefill, self._decode = wish, prefill, decode
        self._raw: dict[str, list[float]] = {}

    def run(self) -> Outcome:
        wish, shape = self._wish, self._wish.shape
        self._allocate()
        info = self._meet()
        path = str(info["path"])
        self._measure_raw(path)
        self._decode.call("wipe")
        times = self._transfer()
        if wish.spoil:
            self._decode.call("spoil", shape.layers // 2)
        wrong, touched = self._verify()
        self._measure_raw(path)
        self._both("close")
        reasons = [str(reason) for reason in info["reasons"]]  # type: ignore[attr-defined]
        return Outcome(shape, this_machine(), wish.mode, path, reasons, times, self._raw, wrong, touched)

    def _bar(self, total: float, what: str, unit: str, **options: Any) -> Bar:
        return bar(total, quiet=self._wish.quiet, leave=True, desc=f"{what:9}", unit=unit, **options)

    def _allocate(self) -> None:
        self._prefill.begin("allocate")
        self._decode.begin("allocate")
        with self._bar(self._wish.shape.layers, "filling", " layers") as progress:
            for _ in self._prefill.events():
                progress.update(1)
        self._decode.result()

    def _both(self, method: str, *args: object) -> tuple[object, object]:
        self._prefill.begin(method, *args)
        self._decode.begin(method, *args)
        return self._prefill.result(), self._decode.result()

    def _meet(self) -> dict[str, object]:
        wish = self._wish
        backend = BackendType.TCP if wish.path == "tcp" else BackendType.RDMA
        told = self._both("meet", int(backend), wish.mode)
        info: dict[str, object] = told[0] or told[1]  # type: ignore[assignment]
        if wish.path != "auto" and str(info["path"]).partition("/")[0] != wish.path:
            raise PathRefused(f"the path is {info['path']}, not {wish.path}: {info['reasons']}")
        return info

    def _measure_raw(self, path: str) -> None:
        if path.startswith("shm/") and not path.endswith("stream"):
            try:
                for _ in range(_RAW_PASSES):
                    self._note("process_vm_readv", self._decode.call("raw_read"))
            except RemoteError as err:
                print(f"mori demo: no raw limit: {err}", file=sys.stderr)
            return
        for n in raw_tcp.CONNECTIONS:
            self._decode.begin("raw_receive", n)
            self._decode.event()
            self._note(f"TCP, {n} connection{'s' * (n > 1)}", self._prefill.call("raw_send", n))
            self._decode.result()

    def _note(self, name: str, gbps: float) -> None:
        self._raw.setdefault(name, []).append(gbps)

    def _transfer(self) -> list[LayerTime]:
        wish, shape = self._wish, self._wish.shape
        mover = self._prefill if wish.mode == "write" else self._decode
        mover.begin("transfer", wish.mode, wish.inflight)
        style = "{desc}: {percentage:3.0f}%|{bar}| {n:.2f}/{total:.2f} GB [{elapsed}<{remaining}, {rate_fmt}]"
        with self._bar(shape.moved_bytes / 1e9, "moving", " GB", bar_format=style) as progress:
            for layers in mover.events():
                progress.update(layers * shape.layer_bytes / 1e9)
        times: list[LayerTime] = mover.call("times")
        return times

    def _verify(self) -> tuple[int, int]:
        self._decode.begin("verify")
        wrong = touched = 0
        with bar(
            self._wish.shape.layers, quiet=self._wish.quiet, leave=True, desc="verifying", unit=" layers"
        ) as progress:
            for bad, spilt in self._decode.events():
                wrong, touched = wrong + bad, touched + spilt
                progress.update(1)
        return wrong, touched


def travel(wish: Wish, say: Callable[[str], None]) -> Outcome:
    """Starts both processes, runs the journey and ends them, whatever happens."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    factory = f"{Worker.__module__}:{Worker.__name__}"
    with ExitStack() as stack:
        stack.callback(ours.close)
        stack.callback(theirs.close)
        prefill = stack.enter_context(Remote("prefill", factory, "prefill", wish.shape, wish.seed, ours))
        decode = stack.enter_context(Remote("decode", factory, "decode", wish.shape, wish.seed, theirs))
        say(f"prefill is process {prefill.pid}, decode is process {decode.pid}")
        return Journey(wish, prefill, decode).run()
