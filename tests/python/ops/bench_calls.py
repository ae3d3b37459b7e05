# SPDX-License-Identifier: MIT
"""What a dispatch and a combine cost their caller on a GPU, beside the kernels: emulated GPUs do not run them here.

    python tests/python/ops/bench_calls.py

Medians in microseconds: of calls one after the other, and of calls with other work of Python's between them, when the
threads of the native runtime have gone to sleep.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = 2000
PAUSE_US = 1000
TOKENS, HIDDEN, TOPK = 4, 128, 8


def child() -> None:
    import numpy as np

    from arrays import Place, make
    from mori import shmem
    from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp

    shmem.shmem_init()
    config = EpDispatchCombineConfig("bfloat16", 0, 1, HIDDEN, 0, 1, 2, 128, TOPK, TOPK)
    op = EpDispatchCombineOp(config)
    Place.gpu = op._place
    rows = op.get_registered_combine_input_buffer("bfloat16")
    ids = make("gpu", np.tile(np.arange(TOPK, dtype=np.int32), (TOKENS, 1)))
    weights = make("gpu", np.ones((TOKENS, TOPK), np.float32))
    given = op._buffers.own("gpu", "bench", (TOKENS, HIDDEN), "bfloat16")
    calls: dict[str, Callable[[], Any]] = {
        "dispatch": lambda: op.dispatch(given, weights, None, ids),
        "combine": lambda: op.combine(rows, None, ids),
    }
    for name, call in calls.items():
        told = [
            f"{what} {median_us(call, pause):.2f} us"
            for what, pause in (("one after the other", 0), ("apart", PAUSE_US))
        ]
        print(f"{name}: {', '.join(told)}")
    op.close()
    shmem.shmem_finalize()


def median_us(call: Callable[[], Any], pause_us: int) -> float:
    clock, spent = time.perf_counter_ns, []
    for _ in range(CALLS):
        until = clock() + pause_us * 1000
        while clock() < until:
            pass
        begin = clock()
        call()
        spent.append(clock() - begin)
    return statistics.median(spent) / 1e3


def main() -> None:
    import gpus

    gpus.start()
    steered = {"FAKE_GPU_IDLE": "1", "MORI_SHMEM_DEVICE": "gpu"}
    subprocess.run([sys.executable, __file__, "child"], env={**os.environ, **gpus.child_env(), **steered}, check=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    child() if sys.argv[1:] == ["child"] else main()
