# SPDX-License-Identifier: MIT
"""`mori bench`: transfers of mori beside the raw limits of this machine, measured in one run.

* harness: cases, targets, plans and the loop that measures; report and plot show the results
* raw: the yardsticks, one module for each
* io, shmem, ep: the suites, each a table of cases and their plans
* memory, process: checked memory and spawned processes, which `mori demo` and `mori tune` also use
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run ``mori bench`` with the arguments after its name and return the exit status."""
    from ._command import main as command

    return command(argv)
