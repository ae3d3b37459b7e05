# SPDX-License-Identifier: MIT
"""`mori demo`: programs that demonstrate one part of mori each, and verify every byte.

* ``mori demo`` or ``mori demo kv``: a prefill and a decode process move a paged KV cache (mori.io)
* ``mori demo shmem``: processes put and get round a ring and exchange all with all (mori.shmem)
* ``mori demo moe``: a mixture-of-experts layer over several processes (mori.ops)
* ``mori demo interchange``: a kernel on one GPU writes to another GPU's memory through a NIC that
  it drives itself
"""

from __future__ import annotations

import importlib

_DEMOS = ("kv", "shmem", "moe", "interchange")


def main(argv: list[str]) -> int:
    """Run ``mori demo`` with the arguments after its name and return the exit status."""
    name, arguments = ("kv", argv) if not argv or argv[0] not in _DEMOS else (argv[0], argv[1:])
    module = importlib.import_module(f"{__name__}.{name}")
    status: int = module.main(arguments)
    return status
