# SPDX-License-Identifier: MIT
"""``mori version``."""

from __future__ import annotations

import argparse
import json
import platform
from typing import Any

from .. import __version__, _core
from .._errors import MoriError


def add(commands: Any) -> None:
    parser = commands.add_parser("version", help="print the versions of mori and of what it runs on")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    facts = {"mori": __version__, "native": native_version(), "python": platform.python_version()}
    if arguments.json:
        print(json.dumps(facts))
    else:
        print(f"mori {facts['mori']} (native {facts['native'] or 'not loadable'}, Python {facts['python']})")
    return 0


def native_version() -> str | None:
    """Return the version of the native extension; None if it does not load."""
    try:
        version: str = _core.call("Version")
    except MoriError:
        return None
    return version
