# SPDX-License-Identifier: MIT
"""One program as several ranks: those that a launcher has started, or processes that it starts itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from .. import _core

# A rank that fails takes the others with it, but first they may say what they saw of it.
_LAST_WORDS = 5.0


def launched() -> int:
    """How many ranks the launcher of this process has started: torchrun, mpirun, srun, Ray; 0 without a launcher."""
    told = json.loads(_core.call("ShmemLaunched"))
    return 0 if told is None else int(told["size"])


def join() -> None:
    """Become a rank. Ranks exchange numpy arrays here, so symmetric memory is the host's, also where there are GPUs."""
    from .. import shmem

    os.environ.setdefault("MORI_SHMEM_DEVICE", "host")
    shmem.shmem_init()


def start(program: Sequence[str], ranks: int) -> int:
    """Run ``mori`` with the arguments ``program`` as so many processes of this host and return the worst exit status.

    They find each other through a file. What they print comes through; when one fails, the others are ended.
    """
    with tempfile.TemporaryDirectory(prefix="mori-demo-") as folder:
        environment = {**os.environ, "MORI_WORLD_SIZE": str(ranks), "MORI_BOOTSTRAP": os.path.join(folder, "ranks")}
        command = [sys.executable, "-m", "mori", *program]
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(ranks):  # one by one, so that those that run are known if one does not start
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
            # A rank that a signal ended has a negative status.
            return max((code if code > 0 else 128 - code for code in bad), default=0)
        if bad and limit is None:
            limit = time.monotonic() + _LAST_WORDS
        if limit is not None and time.monotonic() > limit:
            return max(code if code > 0 else 128 - code for code in bad)
        time.sleep(0.02)
