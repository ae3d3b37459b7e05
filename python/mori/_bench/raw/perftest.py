# SPDX-License-Identifier: MIT
"""perftest on the RDMA device that a session uses, from the device to itself as the session is."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from mori import _core
from mori.io import IOEngineSession

from ..harness import Case, Turn

_LIMIT_S = 120


def streams(session: IOEngineSession, case: Case, rounds: int) -> dict[str, Turn]:
    """Return a turn that sends as many messages of the case's size: GB/s; none without perftest."""

    def flow(tool: str, messages: int) -> float:
        row = _run(tool, session, case.size, messages, "--report_gbits")
        return float(row[3]) / 8  # size, messages, peak, average in Gbit/s

    return _turns("bw", session, case, case.entries * rounds, flow)


def latency(session: IOEngineSession, case: Case, pings: int) -> dict[str, Turn]:
    """Return a turn that measures the typical microseconds of a message; none without perftest."""
    return _turns("lat", session, case, pings, lambda tool, n: float(_run(tool, session, case.size, n)[4]))


def _turns(
    what: str, session: IOEngineSession, case: Case, messages: int, measure: Callable[[str, int], float]
) -> dict[str, Turn]:
    tool, why = f"ib_{'read' if case.read else 'write'}_{what}", "install perftest"
    if shutil.which(tool):
        try:
            _run(tool, session, 64, 5)
            return {tool: lambda: measure(tool, max(5, messages))}  # the fewest that it takes
        except (RuntimeError, subprocess.TimeoutExpired) as err:
            why = str(err).strip().splitlines()[0]
    print(f"mori bench: no {tool} to compare with: {why}", file=sys.stderr)
    return {}


def _run(tool: str, session: IOEngineSession, size: int, messages: int, *options: str) -> list[str]:
    """Run a server and a client on the session's device. Return the figures of the client."""
    device, port = device_of(session.describe()["reasons"])
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        tcp_port = str(reserved.getsockname()[1])
    command = [tool, "-F", "-d", device, "-i", str(port), "-p", tcp_port, *_gid(device, port)]
    command += ["-s", str(size), "-n", str(messages), *options]
    client = [*command, "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(50):  # until the server listens
                done = subprocess.run(client, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
                if done.returncode == 0 or server.poll() is not None:
                    break
                time.sleep(0.02)
        finally:
            server.kill()
    return row_of(done.stdout, str(size), f"{tool}: {done.stdout}{done.stderr}")


def row_of(output: str, size: str, error: str) -> list[str]:
    """Return the words of the row that begins with a size, or raise RuntimeError(error)."""
    for words in map(str.split, output.splitlines()):
        if len(words) > 4 and words[0] == size:
            return words
    raise RuntimeError(error)


def device_of(reasons: Sequence[str]) -> tuple[str, int]:
    """Return the first device and port that a session reports."""
    for reason in reasons:
        if found := re.match(r"verbs/\w+: (\S+):(\d+)", reason):
            return found[1], int(found[2])
    raise RuntimeError(f"the session names no RDMA device: {reasons}")


def _gid(device: str, port: int) -> list[str]:
    """Return the option with the index of the GID that mori uses, empty if the port needs none."""
    names = {device, f"{device}:{port}"} if port == 1 else {f"{device}:{port}"}
    rows = json.loads(_core.call("Doctor"))["verbs"]["gids"]
    return next((["-x", str(row["index"])] for row in rows if row["taken"] and row["nic"] in names), [])
