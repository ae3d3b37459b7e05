# SPDX-License-Identifier: MIT
"""What the output of a case says about it: how many tests passed, how fast it was."""

from __future__ import annotations

import json
import re

# A row of ib_write_bw: bytes, iterations, peak and average bandwidth in MiB/s, millions of messages a second.
BANDWIDTH = re.compile(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", re.MULTILINE)
# ibv_rc_pingpong's last line.
PINGPONG = re.compile(r"= ([\d.]+) usec/iter")
GO = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
PYTEST = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.MULTILINE)
COUNT = re.compile(r"(\d+) (\w+)")


def bandwidth(text: str) -> dict[str, float]:
    """Of perftest's ib_*_bw."""
    rows = BANDWIDTH.findall(text)
    if not rows:
        raise ValueError("no row of figures")
    _, _, _, average, rate = rows[-1]
    # perftest counts the CPU's cycles, whose rate it finds in a fifth of a second. When the CPU is taken away meanwhile
    # the fit is poor: it says so on standard error, and every figure is 0. One that passes is right to a few per cent.
    if not float(average):
        raise ValueError(f"an average of {average} MiB/s, as when the rate of the CPU's cycles is not found")
    return {"MiB/s": float(average), "messages/s": float(rate) * 1e6}


def pingpong(text: str) -> dict[str, float]:
    """Of ibv_rc_pingpong: a round takes so long."""
    found = PINGPONG.search(text)
    if found is None:
        raise ValueError("no line of figures")
    return {"us": float(found[1])}


def tests(text: str) -> dict[str, float]:
    """Of a test program of Go, or of pytest. One that ran none has shown nothing."""
    results = {name: result for result, name in GO.findall(text)}
    parents = {name.rpartition("/")[0] for name in results}
    said = [result for name, result in results.items() if name not in parents]
    counts = {name: float(said.count(word)) for word, name in (("PASS", "passed"), ("SKIP", "skipped")) if word in said}
    if found := PYTEST.search(text):
        counts = {word: float(number) for number, word in COUNT.findall(found[1]) if word in ("passed", "skipped")}
    if not counts.get("passed"):
        raise ValueError("no test ran")
    return counts


def ratios(text: str) -> dict[str, float]:
    """Of mori bench --json: each case beside the raw limit that was measured in turns with it."""
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    found = {f"x raw ({row['case']})": float(row["ratio"]) for row in rows if row.get("ratio")}
    if not found:
        raise ValueError("no ratio")
    return found


def words(figures: dict[str, float]) -> str:
    """As a cell of a table."""
    return ", ".join(f"{number(value)} {name}" for name, value in figures.items())


def number(value: float) -> str:
    """As a person reads it."""
    if value >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
