# SPDX-License-Identifier: MIT
"""The installed OpenSHMEM library, measured by openshmem.c in processes of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from ..harness import Unavailable

_SOURCE = Path(__file__).with_name("openshmem.c")
_LIMIT_S = 60.0  # of the compiler, and of an answer


def missing() -> str | None:
    """Return why no library is installed, or None."""
    absent = [tool for tool in ("oshcc", "oshrun") if shutil.which(tool) is None]
    return f"{' and '.join(absent)} not found; Debian has them in libopenmpi-dev" if absent else None


class Library:
    """Two PEs of the library, started by the first measurement. They sleep between measurements."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mori-bench-")
        self._errors = open(f"{self._folder.name}/errors", "w+")  # noqa: SIM115 - closed by close
        self._process: subprocess.Popen[str] | None = None
        self.name = ""

    def measure(self, what: str, n: int, rounds: int, runs: int) -> float:
        """Return the nanoseconds of a round in the fastest run. Raises Unavailable if it fails."""
        if self._process is None:
            self._process = self._start()
            self.name = self._line(self._process)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # its end is noticed below
            self._process.stdin.write(f"{what} {n} {rounds} {runs}\n")
        answer, _, figure = self._line(self._process).partition(" ")
        if answer != what:
            raise self._failure(f"it answered {answer!r} to {what}")
        return float(figure)

    def _start(self) -> subprocess.Popen[str]:
        if reason := missing():
            raise Unavailable(reason)
        program = os.path.join(self._folder.name, "openshmem")
        command = ["oshcc", "-O2", str(_SOURCE), "-o", program]
        compiled = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        if compiled.returncode:
            raise Unavailable(f"oshcc {_SOURCE.name}: {compiled.stderr.strip()}")
        # Open MPI refuses to run as root, and more processes than cores, by default.
        allowed = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command, pipe = ["oshrun", "--oversubscribe", "-np", "2", program], subprocess.PIPE
        return subprocess.Popen(
            command, bufsize=1, text=True, stdin=pipe, stdout=pipe, stderr=self._errors, env=allowed
        )

    def _line(self, process: subprocess.Popen[str]) -> str:
        """Read one line. The library answers each question with one line."""
        assert process.stdout is not None
        late = threading.Timer(_LIMIT_S, process.kill)
        late.start()
        line = process.stdout.readline()
        late.cancel()
        if not line.endswith("\n"):
            raise self._failure(f"oshrun ended with status {process.wait(5)}")
        return line.rstrip("\n")

    def _failure(self, text: str) -> Unavailable:
        self._errors.seek(0)
        said = self._errors.read().strip()
        return Unavailable(f"the OpenSHMEM library does not run here: {text}{': ' + said if said else ''}")

    def close(self) -> None:
        """End the processes: by the end of their input, then by a signal."""
        if self._process is not None:
            try:
                self._process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()  # its PEs end with it
                self._process.communicate()
        self._errors.close()
        self._folder.cleanup()
