# SPDX-License-Identifier: MIT
"""``mori doctor``: the host's hardware and libraries, and the path to each kind of peer.

Native code reports the host. This module adds facts about Python and prints the report.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import re
import sys
from typing import Any

from .. import __version__, _core
from .._errors import MoriError
from ._table import pairs, table

# The sections of the report: key, title, and the text if the section is empty.
_SECTIONS = (
    ("python", "Python", ""),
    ("host.numa", "NUMA nodes", "none found"),
    ("host.nics", "Network interfaces", "none found"),
    ("host.gpus", "GPUs on the PCI bus", "none found"),
    ("gpus", "GPUs that their drivers answer for", "none"),
    ("verbs.library", "RDMA library (libibverbs)", "unknown"),
    ("verbs.ports", "RDMA ports", "none, so peers on other hosts are reached by TCP"),
    ("verbs.gids", "Addresses of RDMA ports", "none"),
    ("verbs.devices", "Limits of RDMA devices", "none"),
    ("verbs.near", "RDMA ports by memory: what it would take, and how far each is", "none"),
    ("verbs.memlock", "Memory that may be locked, which registering does", "unknown"),
    ("verbs.gpudirect", "RDMA to and from GPU memory", "unknown"),
    ("verbs.problems", "What RDMA lacks, and what to do", "nothing"),
    ("cma", "Cross-memory attach (copies between processes of this host)", "unknown"),
    ("paths", "Path to each kind of peer, and why no better one", "unknown"),
    ("shmem", "mori.shmem, if it were initialised here", "unknown"),
)


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor", aliases=["check", "diagnose"], help="report this host's hardware, permissions and paths to peers"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    facts = collect()
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        print(_report(facts))
    return 1 if "problem" in facts else 0


def collect() -> dict[str, Any]:
    """Return the report: ``python``, then the native sections.

    If native code does not load, ``problem`` replaces these sections.
    """
    facts: dict[str, Any] = {"python": _python_facts()}
    try:
        facts.update(json.loads(_core.call("Doctor")))
        facts["shmem"] = _shmem_facts()
    except MoriError as err:
        facts["problem"] = str(err)
    return facts


def _shmem_facts() -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(_core.call("ShmemDoctor"))
    except MoriError as err:
        return {"problem": str(err)}
    return facts


def _python_facts() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "mori": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "platform": platform.platform(),
    }
    # Read installed versions from metadata: importing torch takes seconds and starts threads.
    facts["torch"], facts["numpy"] = _installed("torch"), _installed("numpy")
    return facts


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _report(facts: dict[str, Any]) -> str:
    host = facts.get("host") or {}
    if host:
        cpu = {"CPUs": f"{host.get('cpus')} x {host.get('cpu_model') or 'unknown model'}"}
        paths = [
            {**row, "path": row["path"] or "none", "reasons": "; ".join(row["reasons"])}
            for row in facts.get("paths") or []
        ]
        gpus = [{**row, "kernels": row["kernels"] or "none"} for row in facts.get("gpus") or []]
        verbs = facts.get("verbs") or {}
        verbs = {**verbs, "near": [_near(row) for row in verbs.get("near") or []]}
        facts = {**facts, "python": {**facts["python"], **cpu}, "paths": paths, "gpus": gpus, "verbs": verbs}
    sections = []
    for place, title, nothing in _SECTIONS:
        value: Any = facts
        for name in place.split("."):
            value = value.get(name) if value else None
        if value is not None or "problem" not in facts:
            sections.append(_section(title, value, facts.get("no_gpu") or nothing if place == "gpus" else nothing))
    if "problem" in facts:
        sections.append(f"Problem\n{facts['problem']}")
    return "\n\n".join(sections)


def _near(row: dict[str, Any]) -> dict[str, Any]:
    """Give each port its own column, ordered by name. The rows list ports from near to far."""
    distances = {entry["nic"]: entry["distance"] for entry in row["distances"]}
    columns = {nic: distances[nic] for nic in sorted(distances, key=_natural)}
    return {"memory": row["memory"], "takes": row["takes"], **columns, "why": row["why"]}


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts mlx5_10 after mlx5_9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _section(title: str, value: Any, nothing: str) -> str:
    if isinstance(value, list) and value:
        return f"{title}\n{table(value, '  ')}"
    if isinstance(value, dict) and value:
        return f"{title}\n{pairs(value, '  ')}"
    return f"{title}: {nothing}"
