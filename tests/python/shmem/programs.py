# SPDX-License-Identifier: MIT
"""Ranks as separate programs, whose exit status, signals and output a test checks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mori.shmem import shmem_get_unique_id

HERE = Path(__file__).resolve().parent

_HEAD = """
import ctypes, os, signal, sys, time
sys.path.insert(0, {tests!r})
import numpy as np
import mori.shmem as shmem
from mori.shmem import *
from mori.shmem import mori_shmem_create_tensor, mori_shmem_free_tensor
me, npes = int(sys.argv[1]), int(sys.argv[2])
def join(uid=bytes.fromhex(sys.argv[3])):
    assert shmem_init_attr(1, me, npes, uid) == 0
def say(*what):
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())  # in one go: other threads may say something, too
def failed(call):
    begin = time.monotonic()
    try:
        call()
        say("fine")
    except PEFailedError as err:
        say("PE", err.pe, "failed", round(time.monotonic() - begin, 1), err)
    except RuntimeError as err:
        say(type(err).__name__, err)
"""


class Programs:
    """One Python program in ``size`` processes; it begins with ``me``, ``npes``, ``join()`` and mori.shmem's names."""

    def __init__(
        self, size: int, program: str, environments: Sequence[dict[str, str]] = (), **environment: str
    ) -> None:
        unique_id = shmem_get_unique_id().hex()
        code = _HEAD.format(tests=str(HERE.parent)) + program
        path = os.pathsep.join(sys.path)
        base = {**os.environ, "PYTHONPATH": path, "MORI_SHMEM_HEAP_SIZE": "64M", "MORI_BOOTSTRAP_TIMEOUT": "60"}
        base["MORI_SHMEM_LOG_LEVEL"] = "critical"  # else it is among the complaints
        each = environments or [{}] * size
        self.all = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(rank), str(size), unique_id],
                env={**base, **environment, **each[rank]},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def line(self, rank: int) -> str:
        """The next line that a rank prints; the test's own time limit bounds it."""
        stdout = self.all[rank].stdout
        assert stdout is not None
        return stdout.readline().strip()

    def expect(self, text: str) -> None:
        """Wait until each rank has printed ``text``."""
        for rank in range(len(self.all)):
            assert self.line(rank) == text, self.fail(rank)

    def fail(self, rank: int) -> str:
        self.stop()
        stderr = self.all[rank].stderr
        return f"rank {rank}: {stderr.read() if stderr else ''}"

    def rest(self, rank: int, timeout: float = 90) -> tuple[int, str, str]:
        """Wait for a rank's end; return its exit status, what else it printed, and its complaints."""
        out, err = self.all[rank].communicate(timeout=timeout)
        return self.all[rank].returncode, out.strip(), err.strip()

    def stop(self) -> None:
        for process in self.all:
            process.kill()
        for process in self.all:
            process.wait(10)

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for process in self.all:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def settle() -> None:
    """Give ranks that have just said that they wait the time to be in it."""
    time.sleep(0.4)
