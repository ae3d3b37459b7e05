# SPDX-License-Identifier: MIT
"""Processes of benchmarks and demos: services, groups of PEs, and ranks of a program.

A Remote spawns a fresh interpreter, makes a service object in it and calls its methods over a pipe.
The process ends when the pipe closes, so it never outlives its parent. It ignores Ctrl-C, which its
parent handles.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from mori import shmem

_GRACE_S = 5.0  # how long the other ranks may run and report after one has failed


class RemoteError(RuntimeError):
    """A remote method raised, or its process died; `trace` is the remote traceback of a method."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.trace = trace


class Local:
    """A service in this process, called like a Remote. `begin` runs the whole method."""

    def __init__(self, service: Any) -> None:
        self.service = service

    def begin(self, method: str, *args: Any) -> None:
        self._result = operator.attrgetter(method)(self.service)(*args)

    def result(self) -> Any:
        return self._result

    def call(self, method: str, *args: Any) -> Any:
        self.begin(method, *args)
        return self.result()


class Remote(Local):
    """A service in a spawned process. `factory` is a class or "module:Class"; `args` must be picklable.

    Methods are named as in Python; "tcp.flow" is the method flow of the service's attribute tcp.
    `timeout` bounds the wait for a result.
    """

    timeout = 120.0

    def __init__(self, name: str, factory: type | str, *args: Any) -> None:
        if isinstance(factory, type):
            factory = f"{factory.__module__}:{factory.__name__}"
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, factory, args), name=name, daemon=True)
        with _ctrl_c_blocked():
            self._process.start()
        child.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def begin(self, method: str, *args: Any) -> None:
        """Start a method and return immediately. `result` must follow."""
        self._pipe.send((method, args))

    def result(self) -> Any:
        try:
            if not self._pipe.poll(self.timeout):
                raise RemoteError(f"{self.name} gave no answer for {self.timeout:.0f} s")
            value, failure = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(1)
            raise RemoteError(f"{self.name} died with exit code {self._process.exitcode}") from None
        if failure:
            text, trace = failure
            raise RemoteError(f"{self.name} (process {self.pid}): {text}", trace)
        return value

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *failure: Any) -> None:
        """End the process: close the pipe, terminate after 3 seconds or a failure, then kill."""
        self._pipe.close()
        self._process.join(0 if failure[0] else 3)
        for end in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                end()
                self._process.join(2)


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Block SIGINT in processes that start inside, from their first instruction; delay it here."""
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _serve(pipe: Connection, factory: str, args: tuple[Any, ...]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
        module, _, name = factory.partition(":")
        service = Local(getattr(importlib.import_module(module), name)(*args))
        while True:
            method, arguments = pipe.recv()
            result, failure = None, None
            try:
                result = service.call(method, *arguments)
            except Exception as err:
                failure = f"{type(err).__name__}: {err}", traceback.format_exc()
            pipe.send((result, failure))


class Services(contextlib.ExitStack):
    """Services that work together. Exiting ends the processes that entered it."""

    def __init__(self, *services: Local) -> None:
        super().__init__()
        self.all = services

    def one(self, number: int, method: str, *args: Any) -> Any:
        """Call a method of one service."""
        return self.all[number].call(method, *args)

    def each(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all services at the same time: those of this process come last."""
        for service in sorted(self.all, key=lambda service: not isinstance(service, Remote)):
            service.begin(method, *args)
        return [service.result() for service in self.all]


class Member:
    """PE `me` of `size`, with a symmetric heap of `heap` bytes on GPU `gpu` or on the host."""

    def __init__(self, me: int, size: int, heap: int, gpu: int | None = None) -> None:
        self.me, self.size = me, size
        # The waits of other PEs for a dead one must end before their caller's timeout.
        os.environ.update(MORI_SHMEM_HEAP_SIZE=str(heap), MORI_BOOTSTRAP_TIMEOUT="60", MORI_SHMEM_TIMEOUT="60")
        os.environ["MORI_SHMEM_DEVICE"] = "host" if gpu is None else "gpu"
        if gpu is not None:
            os.environ["MORI_SHMEM_GPU"] = str(gpu)

    def unique_id(self) -> bytes:
        return shmem.shmem_get_unique_id()

    def join(self, unique_id: bytes) -> None:
        if shmem.shmem_init_attr(shmem.MORI_SHMEM_INIT_WITH_UNIQUEID, self.me, self.size, unique_id) != 0:
            raise RuntimeError("mori.shmem did not start; its log says why")

    def paths(self) -> list[str]:
        """Return how each PE is reached from here."""
        return [peer["path"] for peer in shmem.shmem_describe()["peers"]]

    def leave(self) -> None:
        shmem.shmem_finalize()


class Group(Services):
    """`size` processes that each serve a Member; `args` follow its `heap`."""

    def __init__(self, factory: type | str, size: int, heap: int, *args: Any) -> None:
        super().__init__()
        self.size = size
        with contextlib.ExitStack() as started:
            pes = (Remote(f"PE {me}", factory, me, size, heap, *args) for me in range(size))
            self.all = tuple(started.enter_context(pe) for pe in pes)
            self.each("join", self.one(0, "unique_id"))
            self.push(started.pop_all())
            self.push(self._leave)

    def _leave(self, *failure: Any) -> None:
        if failure[0] is None:
            self.each("leave")


def run_ranks(program: Sequence[str], ranks: int) -> int:
    """Run ``mori`` with these arguments as `ranks` processes. Return the worst exit status.

    They bootstrap through a file and inherit the output. If one fails, the others are ended.
    """
    with tempfile.TemporaryDirectory(prefix="mori-") as folder, contextlib.ExitStack() as ending:
        environment = {**os.environ, "MORI_WORLD_SIZE": str(ranks), "MORI_BOOTSTRAP": os.path.join(folder, "ranks")}
        started: list[subprocess.Popen[bytes]] = []
        for rank in range(ranks):
            command = [sys.executable, "-m", "mori", *program]
            started.append(subprocess.Popen(command, env={**environment, "MORI_RANK": str(rank)}))
            ending.callback(started[-1].wait)
            ending.callback(started[-1].kill)
        limit = float("inf")
        while None in (codes := [process.poll() for process in started]) and time.monotonic() < limit:
            if limit == float("inf") and any(codes):
                limit = time.monotonic() + _GRACE_S
            time.sleep(0.02)
        # A rank that a signal ended has a negative status.
        return max(code if code >= 0 else 128 - code for code in codes if code is not None)
