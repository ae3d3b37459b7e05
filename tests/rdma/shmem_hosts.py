# SPDX-License-Identifier: MIT
"""mori.shmem and mori.ops between guests: a PE on each, which reach each other by RDMA and no other way.

Runs on every node of a case, with the environment that vm/README.md describes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import mori.shmem as shmem

TESTS = Path(__file__).resolve().parents[1] / "python"
PORT = 18515


def main() -> None:
    """Use each kind of call, with its result checked; then dispatch and combine: what tests of one host do, too."""
    sys.path[:0] = [str(TESTS), str(TESTS / "shmem"), str(TESTS / "ops")]
    import test_rounds
    import test_shmem_paths

    from ranks import Rank

    me, size = int(os.environ["RDMA_VM_NODE"]), int(os.environ["RDMA_VM_NODES"])
    os.environ |= {
        "MORI_RANK": str(me),
        "MORI_WORLD_SIZE": str(size),
        "MORI_BOOTSTRAP": f"{os.environ['RDMA_VM_IP0']}:{PORT}",
        "MORI_BOOTSTRAP_TIMEOUT": "60",
        "MORI_SHMEM_HEAP_SIZE": "64M",
        "MORI_SHMEM_DEVICE": "host",
        "FABRIC_PROVIDER": "verbs",
    }
    shmem.shmem_init()
    rank = Rank(me, size)
    path = test_shmem_paths.everything(rank, False, 1 << 20)
    assert path == "verbs", path
    print(f"PE {me} of {size}: puts, gets, atomics, signals and collectives by {path}", flush=True)
    test_rounds.ROUNDS = 10
    test_rounds.rounds(rank, "IntraNode", 7)
    shmem.shmem_finalize()
    print(f"rank {me} of {size}: {test_rounds.ROUNDS} rounds of dispatch and combine", flush=True)


if __name__ == "__main__":
    main()
