# SPDX-License-Identifier: MIT
"""``mori env``: every environment variable that mori reads, with its value here."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from .. import _core
from ._table import table


def add(commands: Any) -> None:
    parser = commands.add_parser("env", help="list the environment variables that mori reads, with their values")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--set", action="store_true", help="list only variables that are set")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    variables: list[dict[str, Any]] = json.loads(_core.call("Environment"))
    rows = [
        # Native code hides the values of secrets, and returns "" for unset or empty variables.
        {**v, "value": v["value"] or os.environ.get(v["name"])}
        for v in variables
    ]
    rows = [{key: row[key] for key in ("name", "value", "default", "meaning")} for row in rows]
    if arguments.set:
        rows = [row for row in rows if row["value"] is not None]
    if arguments.json:
        print(json.dumps(rows))
        return 0
    print(table(rows) if rows else "no variable of mori is set")
    for message in json.loads(_core.call("UnknownVariables")):
        print(f"mori: {message}", file=sys.stderr)
    return 0
