# SPDX-License-Identifier: MIT
"""The installed OpenSHMEM library, measured by openshmem.c in processes of its own."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from ..harness import Unavailable

_SOURCE = Path(__file__).with_name("openshmem.c")
_COMPILE_S, _ANSWER_S = 60.0, 60.0


def missing() -> str | None:
    """Return why no library is installed, or None."""
    absent = [tool for tool in ("oshcc", "oshrun") if shutil.which(tool) is None]
    return f"{' and '.join(absent)} not found; Debian has them in libopenmpi-dev" if absent else None


class Library:
    """Two PEs of the library, started by the first measurement. They sleep between measurements."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mori-bench-")
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""
        self.name = ""

    def measure(self, what: str, n: int, rounds: int, runs: int) -> float:
        """Return the nanoseconds of a round in the fastest run. Raises Unavailable if the library
        fails.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{what} {n} {rounds} {runs}\n".encode())
            process.stdin.flush()
        except OSError as err:
            raise self._failure(str(err)) from err
        answer, _, figure = self._line().partition(" ")
        if answer != what:
            raise self._failure(f"it answered {answer!r} to {what}")
        return float(figure)

    def _start(self) -> subprocess.Popen[bytes]:
        if reason := missing():
            raise Unavailable(reason)
        program = os.path.join(self._folder.name, "openshmem")
        compiled = subprocess.run(
            ["oshcc", "-O2", str(_SOURCE), "-o", program],
            capture_output=True,
            text=True,
            timeout=_COMPILE_S,
            check=False,
        )
        if compiled.returncode:
            raise Unavailable(f"oshcc {_SOURCE.name}: {compiled.stderr.strip()}")
        # Open MPI refuses to run as root, and more processes than cores, by default.
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self._errors = open(os.path.join(self._folder.name, "errors"), "w+b")  # noqa: SIM115 - closed by close
        self._process = subprocess.Popen(
            ["oshrun", "--oversubscribe", "-np", "2", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **allowed},
        )
        self.name = self._line()
        return self._process

    def _line(self) -> str:
        process, deadline = self._process, time.monotonic() + _ANSWER_S
        assert process is not None
        assert process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    raise self._failure(f"no answer for {_ANSWER_S:.0f} s")
                some = os.read(process.stdout.fileno(), 4096)
                if not some:
                    raise self._failure(f"oshrun ended with status {process.wait(5)}")
                self._read += some
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace")

    def _failure(self, text: str) -> Unavailable:
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()
        return Unavailable(f"the OpenSHMEM library does not run here: {text}{': ' + said if said else ''}")

    def close(self) -> None:
        """End the processes: by the end of their input, then by a signal."""
        process = self._process
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.close()
            except OSError:
                pass  # it ended before it read its input
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()  # its PEs end with it
                process.wait(5)
            process.stdout.close()
            self._errors.close()
        self._process = None
        self._folder.cleanup()
