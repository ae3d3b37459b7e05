# SPDX-License-Identifier: MIT
"""A second process that serves method calls.

`Remote` spawns a fresh interpreter, makes a service object in it and calls its methods over a pipe. A method that is a
generator may send events before its result. The process ends when the pipe closes, so it never outlives its parent, and
it leaves Ctrl-C to the parent.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import GeneratorType, TracebackType
from typing import Any

_SLICE_S = 0.2
CALL_TIMEOUT_S = 120.0


class RemoteError(RuntimeError):
    """A method of a remote service raised, or its process died. `trace` is the remote traceback, if there is one."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.trace = trace


class Remote:
    """The handle of one spawned service. `factory` is "module:Class"; `args` must be picklable."""

    def __init__(self, name: str, factory: str, *args: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, factory, args), name=name, daemon=True)
        with _ctrl_c_blocked():
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    def call(self, method: str, *args: Any, timeout: float = CALL_TIMEOUT_S) -> Any:
        """Calls a method and returns its result; events of a generator are dropped."""
        self.begin(method, *args)
        return self.result(timeout=timeout)

    def begin(self, method: str, *args: Any) -> None:
        """Starts a method and returns at once; `result` or `events` must follow."""
        self._pipe.send((method, args))

    def result(self, *, timeout: float = CALL_TIMEOUT_S) -> Any:
        for kind, value in self._messages(timeout):
            if kind == "result":
                return value
        raise AssertionError("unreachable")

    def event(self, *, timeout: float = CALL_TIMEOUT_S) -> Any:
        """The next event of the method that was begun."""
        for kind, value in self._messages(timeout):
            if kind != "event":
                raise RemoteError(f"{self.name} finished where an event was expected")
            return value
        raise AssertionError("unreachable")

    def events(self, *, timeout: float = CALL_TIMEOUT_S) -> Iterator[Any]:
        """Yields the events until the method ends. The limit holds from one event to the next."""
        for kind, value in self._messages(timeout):
            if kind == "result":
                return
            yield value

    def _messages(self, timeout: float) -> Iterator[tuple[str, Any]]:
        while True:
            kind, value = self._next(timeout)
            if kind == "error":
                text, trace = value
                raise RemoteError(f"{self.name} (process {self.pid}): {text}", trace)
            yield kind, value

    def _next(self, timeout: float) -> tuple[str, Any]:
        deadline = time.monotonic() + timeout
        while not self._pipe.poll(_SLICE_S):
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
        """Ends the process: asks, then terminates after 3 seconds, then kills."""
        self._pipe.close()
        self._process.join(3)
        for end in (self._process.terminate, self._process.kill):
            if not self._process.is_alive():
                return
            end()
            self._process.join(2)

    def __enter__(self) -> Remote:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.terminate()
        self.close()


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """What is started inside never sees Ctrl-C, from its first instruction on; for us it is only put off."""
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _serve(pipe: Connection, factory: str, args: tuple[Any, ...]) -> None:
    try:
        module, _, name = factory.partition(":")
        service = getattr(importlib.import_module(module), name)(*args)
        while True:
            try:
                method, arguments = pipe.recv()
            except EOFError:
                break
            _answer(pipe, service, method, arguments)
    except (BrokenPipeError, ConnectionResetError):
        pass


def _answer(pipe: Connection, service: object, method: str, args: tuple[Any, ...]) -> None:
    try:
        result = getattr(service, method)(*args)
        if isinstance(result, GeneratorType):
            result = _relay(pipe, result)
    except Exception as err:
        pipe.send(("error", (f"{type(err).__name__}: {err}", traceback.format_exc())))
        return
    pipe.send(("result", result))


def _relay(pipe: Connection, steps: Iterator[Any]) -> Any:
    while True:
        try:
            event = next(steps)
        except StopIteration as end:
            return end.value
        pipe.send(("event", event))
