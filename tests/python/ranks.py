# SPDX-License-Identifier: MIT
"""Ranks: long-lived processes with mori.shmem initialised, in which tests run functions.

    @on_ranks(4)
    def test_barrier(rank: Rank) -> None:                # runs in four processes
        mori.shmem.shmem_barrier_all()

    ranks.world(2).run(function, Each([a, b]), c)        # [function(rank, a, c) in rank 0, function(rank, b, c) in 1]

The function must be importable by the processes: at the top of a module, with arguments and results that pickle.
Every wait has an end. After a failure that nobody expected, or a death, all processes are ended, and started anew when
they are needed: it cannot reach into the next test.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib
import inspect
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

TIMEOUT = 90.0
START_TIMEOUT = 120.0
GRACE = 5.0  # seconds that the other ranks get to end after one has failed
# A rank's timeout for other ranks is shorter than a test's timeout for ranks, so that the rank
# reports what it waits for.
ENVIRONMENT = {"MORI_BOOTSTRAP_TIMEOUT": "60", "MORI_SHMEM_HEAP_SIZE": "256M"}


@dataclass
class Rank:
    """The argument of a function in a rank: its number, and objects that live with the world."""

    me: int
    size: int = 0
    kept: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Each:
    """An argument of which every rank gets its own."""

    values: Sequence[Any]


@dataclass
class Outcome:
    """How the function ended in one rank."""

    rank: int
    value: Any = None
    error: BaseException | None = None
    text: str = ""  # the traceback


class RankFailed(Exception):
    """A rank raised, died or did not answer; the message has its traceback, ``outcomes`` has those of all."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        failed = [o for o in outcomes if o.error is not None]
        others = "".join(f"\nrank {o.rank}: {type(o.error).__name__}: {o.error}" for o in failed[1:])
        super().__init__(f"rank {failed[0].rank} of {len(outcomes)}:\n{failed[0].text}{others}")


class RankSkipped(Exception):
    """A rank called pytest.skip."""


class NoAnswer(Exception):
    """A rank died, or did not answer in time."""


class _Process:
    """One rank as seen from the tests."""

    def __init__(self, rank: int, environment: dict[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.rank = rank
        self.pipe, theirs = context.Pipe()
        file, name = tempfile.mkstemp(prefix="rank-", suffix=".stacks")
        os.close(file)
        self.stacks = Path(name)
        self.process = context.Process(target=_serve, args=(theirs, rank, environment, self.stacks), daemon=True)
        with _changed(environment):  # the loader of shared libraries looks before Python does
            self.process.start()
        theirs.close()

    def greet(self) -> None:
        """Wait until it has started, which takes long on a busy machine and counts for no deadline."""
        if not self.pipe.poll(START_TIMEOUT):
            raise NoAnswer(f"rank {self.rank} has not started in {START_TIMEOUT} s")
        self.pipe.recv_bytes()

    def post(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        # By name: a test made by on_ranks stands where its body's name is.
        job = pickle.dumps((function.__module__, function.__qualname__, pickle.dumps(args)))
        with contextlib.suppress(OSError):  # the process is dead; answer reports it
            self.pipe.send_bytes(job)

    def answer(self) -> Outcome:
        """What the rank has sent; call it when its pipe or its end can be seen."""
        try:
            if self.pipe.poll():
                return Outcome(self.rank, *pickle.loads(self.pipe.recv_bytes()))
        except (EOFError, ConnectionError):
            pass
        self.process.join(GRACE)
        return self.silence(f"rank {self.rank} died with exit code {self.process.exitcode}")

    def silence(self, message: str) -> Outcome:
        stacks = self.stacks.read_text()
        return Outcome(self.rank, None, NoAnswer(message), f"{message}; it was in:\n{stacks}" if stacks else message)

    def dump(self) -> None:
        """Have the rank write the stacks of its threads."""
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGUSR1)

    def stop(self, patience: float = 0.0) -> None:
        self.pipe.close()
        self.process.join(patience)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(GRACE)
        self.stacks.unlink(missing_ok=True)


@contextlib.contextmanager
def _changed(environment: dict[str, str]) -> Iterator[None]:
    """Have these variables until the block ends."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Processes:
    """``size`` processes that run a function at once, started when they are needed; nothing is initialised in them."""

    def __init__(self, size: int = 0, environment: dict[str, str] | None = None) -> None:
        self.environment = {**ENVIRONMENT, **(environment or {})}
        self.size = size
        self._all: list[_Process] = []

    def run(self, function: Callable[..., Any], *args: Any, timeout: float = TIMEOUT) -> list[Any]:
        """Run ``function(rank, *args)`` in every rank and return the results; RankFailed if one did not return.

        Where all ranks skip, so does the test.
        """
        import pytest  # not at the top: ranks load this file too

        outcomes = self.outcomes(function, *args, timeout=timeout, grace=GRACE)
        if all(isinstance(o.error, RankSkipped) for o in outcomes):
            pytest.skip(str(outcomes[0].error))
        if any(o.error is not None for o in outcomes):
            self.stop()
            raise RankFailed(outcomes)
        return [o.value for o in outcomes]

    def outcomes(
        self, function: Callable[..., Any], *args: Any, timeout: float = TIMEOUT, grace: float | None = None
    ) -> list[Outcome]:
        """Like run, for functions that are meant to fail in some ranks: how it ended in each."""
        assert self.size, "no world: the processes were ended, or never started"
        ranks = self._ready(self.size)
        for process in ranks:
            own = tuple(a.values[process.rank] if isinstance(a, Each) else a for a in args)
            process.post(function, own)
        return self._collect(ranks, time.monotonic() + timeout, grace)

    def _collect(self, ranks: list[_Process], deadline: float, grace: float | None) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < len(ranks):
            waiting = [p for p in ranks if p.rank not in outcomes]
            ready = wait([w for p in waiting for w in (p.pipe, p.process.sentinel)], deadline - time.monotonic())
            for process in waiting:
                if process.pipe in ready or process.process.sentinel in ready:
                    outcomes[process.rank] = process.answer()
                    if grace is not None and outcomes[process.rank].error is not None:
                        deadline = min(deadline, time.monotonic() + grace)
            if not ready:
                outcomes |= self._give_up(waiting)
        if any(isinstance(o.error, NoAnswer) for o in outcomes.values()):
            self.stop()
        return [outcomes[p.rank] for p in ranks]

    @staticmethod
    def _give_up(waiting: list[_Process]) -> dict[int, Outcome]:
        for process in waiting:
            process.dump()
        time.sleep(0.5)
        return {p.rank: p.silence(f"rank {p.rank} did not answer in time") for p in waiting}

    def kill(self, *ranks: int) -> None:
        """End processes as the kernel does when memory is out."""
        for rank in ranks:
            self._all[rank].process.kill()

    def stop(self, patience: float = 0.0) -> None:
        for process in self._all:
            process.pipe.close()
        for process in self._all:
            process.stop(patience)
        self._all = []

    def _ready(self, size: int) -> list[_Process]:
        started = [_Process(rank, self.environment) for rank in range(len(self._all), size)]
        self._all += started
        for process in started:
            process.greet()
        return self._all[:size]


class Ranks(Processes):
    """Processes of which the first ``size`` have initialised mori.shmem among them, by a unique id."""

    def __init__(self, size: int = 0, environment: dict[str, str] | None = None) -> None:
        super().__init__(0, environment)
        self._hosts = 1, False
        if size:
            self.world(size)

    def world(self, size: int, hosts: int = 1, anew: bool = False, blocks: bool = False) -> Ranks:
        """Make a world of ``size`` ranks, which take themselves to be on ``hosts`` hosts, in turns or in ``blocks``.

        A world that is there already is kept, unless ``anew``.
        """
        alive = self._all and all(p.process.is_alive() for p in self._all[: self.size])
        if not alive:
            self.stop()
        elif (size, (hosts, blocks)) == (self.size, self._hosts) and not anew:
            return self
        else:
            self.run(_leave)
        self.size = 1
        [unique_id] = self.run(_unique_id)
        self.size, self._hosts = size, (hosts, blocks)
        self.run(_join, size, hosts, blocks, unique_id)
        return self

    def close(self) -> None:
        """End the world as programs do, and then the processes."""
        if self.size:
            self.run(_leave)
        self.stop(patience=5)

    def stop(self, patience: float = 0.0) -> None:
        super().stop(patience)
        self.size = 0


def on_ranks(
    size: int, hosts: int = 1, timeout: float = TIMEOUT
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function of a Rank into a test that runs it in ``size`` ranks; parameters after the first are pytest's."""

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(body)
        def test(*, ranks: Ranks, **params: Any) -> None:
            ranks.world(size, hosts).run(body, *params.values(), timeout=timeout)

        _, *rest = inspect.signature(body).parameters.values()
        own = inspect.Parameter("ranks", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = inspect.Signature([own, *rest])
        return test

    return decorate


def _unique_id(_: Rank) -> bytes:
    from mori.shmem import shmem_get_unique_id

    return shmem_get_unique_id()


def _join(rank: Rank, size: int, hosts: int, blocks: bool, unique_id: bytes) -> None:
    from mori.shmem import MORI_SHMEM_INIT_WITH_UNIQUEID, shmem_init_attr

    rank.size = size
    os.environ.pop("MORI_NODE_ID", None)
    if hosts > 1:
        os.environ["MORI_NODE_ID"] = f"host {rank.me * hosts // size if blocks else rank.me % hosts}"
    code = shmem_init_attr(MORI_SHMEM_INIT_WITH_UNIQUEID, rank.me, size, unique_id)
    assert code == 0, f"shmem_init_attr: {code}"


def _leave(rank: Rank) -> None:
    from mori.shmem import shmem_finalize

    rank.kept.clear()
    gc.collect()
    shmem_finalize()


def _serve(pipe: Connection, rank: int, environment: dict[str, str], stacks: Path) -> None:
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and that closes the pipe
    with stacks.open("w") as file:
        faulthandler.enable(file)
        faulthandler.register(signal.SIGUSR1, file)
        me = Rank(rank)
        pipe.send_bytes(b"started")
        while True:
            try:
                job = pipe.recv_bytes()
            except EOFError:
                return
            pipe.send_bytes(_run(me, job))


def _run(me: Rank, job: bytes) -> bytes:
    """Run one job and return value, error and traceback, pickled."""
    try:
        module, name, args = pickle.loads(job)
        function = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        body = inspect.unwrap(function)
        return pickle.dumps((body(me, *pickle.loads(args)), None, ""))
    except BaseException as err:
        if type(err).__name__ == "Skipped":  # of pytest, whose exception does not pickle
            err = RankSkipped(str(err))
        text = "".join(traceback.TracebackException.from_exception(err, capture_locals=True).format())
        try:
            return pickle.dumps((None, pickle.loads(pickle.dumps(err)), text))
        except Exception:
            return pickle.dumps((None, RuntimeError(f"{type(err).__name__}: {err}"), text))
