# SPDX-License-Identifier: MIT
"""`mori demo`: a prefill and a decode process move a paged KV cache, layer by layer, and verify every byte."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run ``mori demo`` with the arguments after its name and return the exit status."""
    from ._command import main as command

    return command(argv)
