# SPDX-License-Identifier: MIT
"""`mori bench`: our transfers beside the raw limits of this machine, in one run.

``main`` is the command. The raw limits (`raw_cma`, `raw_tcp`), buffers with a recomputable pattern (`memory`) and the
spawned second process (`process`) also serve `mori demo`.
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run ``mori bench`` with the arguments after its name and return the exit status."""
    from ._command import main as command

    return command(argv)
