# SPDX-License-Identifier: MIT
"""The ``mori`` command.

Each subcommand is a module with ``add(subparsers)`` and a function that takes the parsed arguments
and returns the exit status. ``mori bench``, ``mori tune`` and ``mori demo`` parse their own
arguments.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from .._errors import MoriError
from .._version import __version__
from . import _doctor, _env, _version

_PASSED_ON = {
    "bench": "measure transfers beside the raw limits of this machine",
    "tune": "find the best launches of dispatch and combine on the GPUs of this host, and keep them in a table",
    "demo": "move a paged KV cache, exchange over symmetric memory, or run a mixture of experts; verify every byte",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (default: the process's arguments) and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in _PASSED_ON:
            return _pass_on(arguments[0], arguments[1:])
        parser = _parser()
        if not arguments:
            parser.print_help()
            return 0
        parsed = parser.parse_args(arguments)
        run: Callable[[argparse.Namespace], int] = parsed.run
        return run(parsed)
    except MoriError as err:
        print(f"mori: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader closed the pipe. Prevent an error message when the interpreter flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mori", description="Communication for LLM inference and training.")
    parser.add_argument("--version", action="version", version=f"mori {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    for module in (_version, _doctor, _env):
        module.add(commands)
    for name, summary in _PASSED_ON.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser


def _pass_on(name: str, arguments: list[str]) -> int:
    command: Callable[[list[str]], int] = importlib.import_module(f"mori._{name}").main
    return command(arguments)
