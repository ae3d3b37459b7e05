# SPDX-License-Identifier: MIT
"""The raw limit of an RDMA device: perftest on the device that a session uses, to itself as the session is."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from mori import _core
from mori.io import IOEngineSession

from .cases import Case
from .measure import Turn

_LIMIT_S = 120


def streams(session: IOEngineSession, case: Case, rounds: int) -> dict[str, Turn]:
    """GB/s of as many messages of the same size, one after the other; nothing where perftest does not run."""
    tool = "ib_read_bw" if case.read else "ib_write_bw"
    many = max(5, case.entries * rounds)  # the fewest that it takes

    def flow() -> float:
        row = _run(tool, session, "-s", str(case.size), "-n", str(many), "--report_gbits")
        return float(row[3]) / 8  # size, messages, peak, average in Gbit/s

    return {tool: flow} if _runs(tool, session) else {}


def latency(session: IOEngineSession, case: Case, pings: int) -> dict[str, Turn]:
    """Microseconds of a message, the typical one; nothing where perftest does not run."""
    tool = "ib_read_lat" if case.read else "ib_write_lat"

    def ping() -> float:
        return float(_run(tool, session, "-s", str(case.size), "-n", str(max(5, pings)))[4])

    return {tool: ping} if _runs(tool, session) else {}


def _runs(tool: str, session: IOEngineSession) -> bool:
    """Tell whether there is something to compare with, and say why not."""
    why = "install perftest"
    if shutil.which(tool):
        try:
            _run(tool, session, "-s", "64", "-n", "5")
        except (RuntimeError, subprocess.TimeoutExpired) as err:
            why = str(err).strip().splitlines()[0]
        else:
            return True
    print(f"mori bench: no {tool} to compare with: {why}", file=sys.stderr)
    return False


def _run(tool: str, session: IOEngineSession, *options: str) -> list[str]:
    """Run a server and a client on the session's device, and return the row of figures that the client prints."""
    device, port = device_of(session.describe()["reasons"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        meet = str(taken.getsockname()[1])
    gid = _gid(device, port)
    command = [tool, "-F", "-d", device, "-i", str(port), "-p", meet, *(["-x", gid] if gid else []), *options]
    size = options[options.index("-s") + 1]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(50):  # until the server listens
                done = subprocess.run(
                    [*command, "127.0.0.1"], capture_output=True, text=True, timeout=_LIMIT_S, check=False
                )
                if done.returncode == 0 or server.poll() is not None:
                    break
                time.sleep(0.02)
        finally:
            server.kill()
    return row_of(done.stdout, size, f"{tool}: {done.stdout}{done.stderr}")


def row_of(output: str, size: str, otherwise: str) -> list[str]:
    """The words of the row that begins with a size. Raises RuntimeError, with ``otherwise`` as its text."""
    for line in output.splitlines():
        words = line.split()
        if len(words) > 4 and words[0] == size:
            return words
    raise RuntimeError(otherwise)


def device_of(reasons: Sequence[str]) -> tuple[str, int]:
    """The first device and port that a session tells."""
    for reason in reasons:
        if found := re.match(r"verbs/\w+: (\S+):(\d+)", reason):
            return found[1], int(found[2])
    raise RuntimeError(f"the session names no RDMA device: {reasons}")


def _gid(device: str, port: int) -> str:
    """The index of the address that mori takes, empty where the port needs none."""
    facts: dict[str, Any] = json.loads(_core.call("Doctor"))
    names = {device, f"{device}:{port}"} if port == 1 else {f"{device}:{port}"}
    taken = [row["index"] for row in facts["verbs"]["gids"] if row["taken"] and row["nic"] in names]
    return str(taken[0]) if taken else ""
