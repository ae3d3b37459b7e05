# SPDX-License-Identifier: MIT
"""Runs a program as several ranks: those of a launcher, or processes that it starts itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from .. import _core

# How long the other ranks may run and report after one has failed.
_GRACE_S = 5.0


def launched() -> int:
    """Return how many ranks torchrun, mpirun, srun or Ray has started; 0 without a launcher."""
    facts = json.loads(_core.call("ShmemLaunched"))
    return 0 if facts is None else int(facts["size"])


def join() -> None:
    """Become a rank. Its symmetric memory is the host's, because the demos exchange numpy arrays.
    """
    from .. import shmem

    os.environ.setdefault("MORI_SHMEM_DEVICE", "host")
    shmem.shmem_init()


def start(program: Sequence[str], ranks: int) -> int:
    """Run ``mori`` with the arguments ``program`` as `ranks` processes and return the worst exit status.

    They bootstrap through a file and inherit the output. If one fails, the others are ended.
    """
    with tempfile.TemporaryDirectory(prefix="mori-demo-") as folder:
        environment = {**os.environ, "MORI_WORLD_SIZE": str(ranks), "MORI_BOOTSTRAP": os.path.join(folder, "ranks")}
        command = [sys.executable, "-m", "mori", *program]
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(ranks):  # known one by one, in case one does not start
                started.append(subprocess.Popen(command, env={**environment, "MORI_RANK": str(rank)}))  # noqa: PERF401
            return _wait(started)
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    limit: float | None = None
    while True:
        codes = [process.poll() for process in processes]
        bad = [code for code in codes if code]
        if None not in codes:
            # A rank that was ended by a signal has a negative status.
            return max((code if code > 0 else 128 - code for code in bad), default=0)
        if bad and limit is None:
            limit = time.monotonic() + _GRACE_S
        if limit is not None and time.monotonic() > limit:
            return max(code if code > 0 else 128 - code for code in bad)
        time.sleep(0.02)
