# SPDX-License-Identifier: MIT
"""What perftest's bandwidth tests measure between two of its processes on DEV0, with GID0 as the index of its GID."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress

import figures

LIMIT_S = 60
PORT = 18599
TURNS = 5


def rate(tool: str, size: int, count: int) -> float:
    """MiB/s of so many messages of a size. A run without a result, as figures.bandwidth reports it, is repeated."""
    for turn in range(TURNS):
        said, complaints = converse(tool, size, count)
        try:
            return figures.bandwidth(said)["MiB/s"]
        except ValueError as err:
            why = f"{tool} measured nothing, {turn + 1} times: {err}; at last it said:\n{said}{complaints}"
    raise RuntimeError(why)


def converse(tool: str, size: int, count: int) -> tuple[str, str]:
    """Run a server and its client. Return the client's standard output and standard error."""
    gid = os.environ["GID0"]
    command = [tool, "-F", "-d", os.environ["DEV0"], "-p", str(PORT), *(["-x", gid] if gid else []),
               "-s", str(size), "-n", str(count)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            while not listens() and server.poll() is None:
                time.sleep(0.02)
            done = subprocess.run([*command, "127.0.0.1"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            if done.returncode:
                raise RuntimeError(f"{tool}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
            server.wait(LIMIT_S)
        finally:
            server.kill()
    return done.stdout, done.stderr


def listens() -> bool:
    """Tell whether a server waits for its client."""
    wanted = f":{PORT:X} "
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(FileNotFoundError), open(table) as rows:
            for row in rows:
                words = row.split()
                if f"{words[1]} ".endswith(wanted) and words[3] == "0A":
                    return True
    return False
