# SPDX-License-Identifier: MIT
"""Commands with time limits, in several lanes that run in parallel."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

TAIL_LINES = 25
TAIL_CHARACTERS = 1800
# What a test program of Go prints of tests that are well, and what names one that is not.
NOISE = re.compile(r"\s*(=== (RUN|PAUSE|CONT|NAME)|--- (PASS|SKIP))")
FAILED = re.compile(r"\s*(--- FAIL|FAILED |ERROR )")
MOST_FAILED = 12


@dataclass
class Step:
    """One command."""

    name: str
    limit: float  # seconds
    command: list[str]
    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # steps that must have ended well
    rows: bool = False  # prints JSON objects, a line each, to keep


@dataclass
class Done:
    """The outcome of a step."""

    step: Step
    result: str  # "ok", or what went wrong
    seconds: float = 0
    output: str = ""

    @property
    def well(self) -> bool:
        return self.result == "ok"

    @property
    def command(self) -> str:
        """The step's command as one would type it."""
        names = [f"{name}={shlex.quote(value)}" for name, value in self.step.env.items()]
        return " ".join([f"cd {self.step.cwd} &&", *names, shlex.join(self.step.command)])

    def tail(self) -> str:
        return tail(self.output)


def tail(output: str) -> str:
    """The failed tests, and the end of the output without lines about passed tests."""
    lines = [line for line in output.splitlines() if not NOISE.match(line)]
    named = [line for line in lines[:-TAIL_LINES] if FAILED.match(line)][:MOST_FAILED]
    end = "\n".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]
    return "\n".join([*named, end])


class Runner:
    """Runs steps until the budget is spent; the rest is reported as not run."""

    def __init__(self, budget: float) -> None:
        self.done: list[Done] = []
        self._end = time.monotonic() + budget
        self._lock = threading.Lock()

    def run(self, lanes: list[list[Step]]) -> None:
        """Run the steps of each lane in order, and all lanes in parallel."""
        threads = [threading.Thread(target=self._lane, args=(lane,)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _lane(self, steps: list[Step]) -> None:
        for step in steps:
            done = self._one(step)
            with self._lock:
                self.done.append(done)
                print(f"{done.seconds:7.1f} s  {step.name}: {done.result}", flush=True)

    def _one(self, step: Step) -> Done:
        with self._lock:
            well = {done.step.name for done in self.done if done.well}
        if missing := [name for name in step.needs if name not in well]:
            return Done(step, f"not run: {', '.join(missing)} did not end well")
        left = self._end - time.monotonic()
        if left < 1:
            return Done(step, "not run: the time is up")
        limit = min(step.limit, left)
        started = time.monotonic()
        try:
            status, output = execute(step, limit)
        except OSError as err:
            return Done(step, f"cannot start: {err}")
        seconds = time.monotonic() - started
        if status is None:
            return Done(step, f"stopped after {limit:.0f} s", seconds, output)
        return Done(step, "ok" if status == 0 else f"exit status {status}", seconds, output)


def execute(step: Step, limit: float) -> tuple[int | None, str]:
    """Return the exit status, None if the limit ended it, and all that was printed."""
    process = subprocess.Popen(
        step.command, cwd=step.cwd, env={**os.environ, **step.env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        try:
            output, _ = process.communicate(timeout=10)  # a child that left the group may hold the pipe
        except subprocess.TimeoutExpired as err:
            output = err.output or b""
        return None, output.decode(errors="replace")


def kill_group(leader: int) -> None:
    """Kill a step and all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
