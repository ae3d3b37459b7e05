# SPDX-License-Identifier: MIT
"""The programs of examples/moe, each of which compares what it does with one process, on host memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import need_torch

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "moe"
ENVIRONMENT = {"MORI_SHMEM_HEAP_SIZE": "64M", "OMP_NUM_THREADS": "1", "MORI_SHMEM_DEVICE": "host"}
pytestmark = pytest.mark.timeout(200)


@pytest.mark.parametrize(("name", "ranks"), [("train", 1), ("train", 3), ("infer", 2)])
def test_an_example_does_what_one_process_does(name: str, ranks: int) -> None:
    need_torch()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, str(FOLDER / f"{name}.py"), "--steps", "3"]
    env = {**os.environ, **ENVIRONMENT}
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        env.pop(variable, None)
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=env, check=False)
    assert done.returncode == 0, done.stderr
    for rank in range(ranks):
        assert f"rank {rank}" in done.stdout
    assert done.stdout.count("as in one process") == ranks
