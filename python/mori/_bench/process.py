# SPDX-License-Identifier: MIT
"""Spawned processes that serve method calls, and groups of them that are PEs of mori.shmem.

A Remote spawns a fresh interpreter, makes a service object in it and calls its methods over a pipe.
A method that is a generator sends events before its result. The process ends when the pipe closes,
so it never outlives its parent. It ignores Ctrl-C, which its parent handles.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import operator
import os
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import GeneratorType
from typing import Any

_POLL_S = 0.2
CALL_TIMEOUT_S = 120.0


class RemoteError(RuntimeError):
    """A remote method raised, or its process died. `trace` is the remote traceback, empty after a
    death.
    """

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.trace = trace


class Remote:
    """A spawned service. `factory` is "module:Class"; `args` must be picklable.

    Methods are named as in Python; "tcp.send" is the method send of the service's attribute tcp.
    """

    def __init__(self, name: str, factory: str, *args: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, factory, args), name=name, daemon=True)
        with _ctrl_c_blocked():
            self._process.start()
        child.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    def call(self, method: str, *args: Any, timeout: float = CALL_TIMEOUT_S) -> Any:
        """Call a method and return its result; events are dropped."""
        self.begin(method, *args)
        return self.result(timeout=timeout)

    def begin(self, method: str, *args: Any) -> None:
        """Start a method and return immediately. `result` or `events` must follow."""
        self._pipe.send((method, args))

    def result(self, *, timeout: float = CALL_TIMEOUT_S) -> Any:
        return drain(self._messages(timeout))

    def event(self, *, timeout: float = CALL_TIMEOUT_S) -> Any:
        """Return the next event of the method that was begun."""
        for value in self._messages(timeout):
            return value
        raise RemoteError(f"{self.name} finished where an event was expected")

    def events(self, *, timeout: float = CALL_TIMEOUT_S) -> Iterator[Any]:
        """Yield the events until the method ends. The limit holds from one event to the next."""
        yield from self._messages(timeout)

    def _messages(self, timeout: float) -> Generator[Any, None, Any]:
        """Yield the events and return the result."""
        while True:
            kind, value = self._next(timeout)
            if kind == "error":
                text, trace = value
                raise RemoteError(f"{self.name} (process {self.pid}): {text}", trace)
            if kind == "result":
                return value
            yield value

    def _next(self, timeout: float) -> tuple[str, Any]:
        deadline = time.monotonic() + timeout
        while not self._pipe.poll(_POLL_S):
            if not self._process.is_alive() and not self._pipe.poll(0):
                raise RemoteError(f"{self.name} died with exit code {self._process.exitcode}")
            if time.monotonic() > deadline:
                raise RemoteError(f"{self.name} gave no answer for {timeout:.0f} s")
        try:
            message: tuple[str, Any] = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(1)
            raise RemoteError(f"{self.name} died with exit code {self._process.exitcode}") from None
        return message

    def close(self) -> None:
        """End the process: close the pipe, terminate after 3 seconds, then kill."""
        self._pipe.close()
        self._process.join(3)
        for end in (self._process.terminate, self._process.kill):
            if not self._process.is_alive():
                return
            end()
            self._process.join(2)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *failure: Any) -> None:
        if failure[0] is not None:
            self._process.terminate()
        self.close()


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Block SIGINT in processes that start inside, from their first instruction on; delay it here.
    """
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _serve(pipe: Connection, factory: str, args: tuple[Any, ...]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
        module, _, name = factory.partition(":")
        service = getattr(importlib.import_module(module), name)(*args)
        while True:
            method, arguments = pipe.recv()
            try:
                result = operator.attrgetter(method)(service)(*arguments)
                if isinstance(result, GeneratorType):
                    result = drain(result, lambda event: pipe.send(("event", event)))
            except Exception as err:
                pipe.send(("error", (f"{type(err).__name__}: {err}", traceback.format_exc())))
            else:
                pipe.send(("result", result))


def drain(steps: Iterator[Any], on_event: Callable[[Any], object] = lambda event: None) -> Any:
    """Run a generator to its end and return its result."""
    while True:
        try:
            event = next(steps)
        except StopIteration as end:
            return end.value
        on_event(event)


class Member:
    """A PE of a group: PE `me` of `size` with a symmetric heap of `heap` bytes, on GPU `gpu` or the
    host.
    """

    def __init__(self, me: int, size: int, heap: int, gpu: int | None = None) -> None:
        self.me, self.size = me, size
        # The waits of other PEs for a dead one must end before their caller's timeout.
        os.environ.update(MORI_SHMEM_HEAP_SIZE=str(heap), MORI_BOOTSTRAP_TIMEOUT="60", MORI_SHMEM_TIMEOUT="60")
        os.environ["MORI_SHMEM_DEVICE"] = "host" if gpu is None else "gpu"
        if gpu is not None:
            os.environ["MORI_SHMEM_GPU"] = str(gpu)

    def unique_id(self) -> bytes:
        from mori import shmem

        return shmem.shmem_get_unique_id()

    def join(self, unique_id: bytes) -> None:
        from mori import shmem

        if shmem.shmem_init_attr(shmem.MORI_SHMEM_INIT_WITH_UNIQUEID, self.me, self.size, unique_id) != 0:
            raise RuntimeError("mori.shmem did not start; its log says why")

    def paths(self) -> list[str]:
        """Return how each PE is reached from here."""
        from mori import shmem

        return [peer["path"] for peer in shmem.shmem_describe()["peers"]]

    def leave(self) -> None:
        from mori import shmem

        shmem.shmem_finalize()


class Group:
    """`size` processes that each serve a Member, named "module:Class". `args` follow `heap`."""

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
        """Call a method of one PE."""
        return self._all[pe].call(method, *args)

    def each(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all PEs at the same time."""
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
