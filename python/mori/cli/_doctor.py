# SPDX-License-Identifier: MIT
"""``mori doctor``: what this host has, and which path each kind of peer would get.

The native side reports the host; this module adds what only Python knows and prints it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
from typing import Any

from .. import __version__, _core
from .._errors import MoriError
from ._table import cell, pairs, table

_TITLES = {
    "python": "Python",
    "host": "Host",
    "cpus": "CPUs",
    "cpu": "CPUs",
    "numa": "NUMA nodes",
    "nics": "NICs",
    "gpus": "GPUs",
    "cma": "Cross-memory attach (same-host copies)",
    "paths": "Paths that peers get",
}


def add(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="report this host's hardware, permissions and paths to peers")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    facts = collect()
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        print("\n\n".join(_section(name, value) for name, value in facts.items()))
    return 1 if "problem" in facts else 0


def collect() -> dict[str, Any]:
    """Return everything known: ``python``, then the native sections, or ``problem`` when nothing native loads."""
    facts: dict[str, Any] = {"python": _python_facts()}
    try:
        facts.update(json.loads(_core.call("Doctor")))
    except MoriError as err:
        facts["problem"] = str(err)
    return facts


def _python_facts() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "mori": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "platform": platform.platform(),
    }
    # Installed versions are read from metadata: importing torch takes seconds and starts threads.
    facts["torch"], facts["numpy"] = _installed("torch"), _installed("numpy")
    return facts


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _section(name: str, value: Any) -> str:
    title = _TITLES.get(name, name.replace("_", " "))
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return f"{title}\n{table(value, '  ')}"
    if isinstance(value, dict) and value:
        return f"{title}\n{pairs(value, '  ')}"
    if isinstance(value, str) and "\n" in value:
        return f"{title}\n{value}"
    return f"{title}: {'none' if value in ([], {}, None) else cell(value)}"
