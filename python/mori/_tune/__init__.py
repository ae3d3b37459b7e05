# SPDX-License-Identifier: MIT
"""`mori tune`: measures which launches are the best on the GPUs of this host, and keeps them in a table.

``main`` is the command, `ep` the measurement, `tables` the file, which
package ep of the native side reads in mode AUTO.
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run ``mori tune`` with the arguments after its name and return the exit status."""
    from ._command import main as command

    return command(argv)
