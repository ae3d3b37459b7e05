# SPDX-License-Identifier: MIT
"""Becoming PEs by a torch process group, an MPI communicator, launchers, and a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import Programs

import mori.shmem as shmem
from support import mpirun, need_mpi, run_script

CHECK = """
x = mori_shmem_create_tensor((1,), np.int64)
shmem_atomic_add(x, shmem_mype() + 1, 0)
shmem_barrier_all()
say(shmem_mype(), shmem_npes(), shmem_atomic_fetch(x, 0))
shmem_barrier_all()
assert shmem_finalize() == 0
"""
# The same program is run by each launcher, and alone.
PROGRAM = f"""
import os, sys
import numpy as np
import mori.shmem
from mori.shmem import *
from mori.shmem import mori_shmem_create_tensor
def say(*what):
    sys.stdout.write(" ".join(map(str, what)) + "\\n")
    sys.stdout.flush()
assert getattr(mori.shmem, sys.argv[1])() == 0
assert getattr(mori.shmem, sys.argv[1])() == 0, "again"
{CHECK}
"""
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path), "MORI_SHMEM_HEAP_SIZE": "64M"}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def launch(*command: object, timeout: float = 120, **environment: str) -> list[str]:
    """Run a command and return the lines that say who is there, sorted."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line for line in done.stdout.splitlines() if line[:1].isdigit())


def expected(size: int) -> list[str]:
    return [f"{rank} {size} {size * (size + 1) // 2}" for rank in range(size)]


class TestAlone:
    def test_is_a_world_of_one(self, program: Path) -> None:
        assert launch(sys.executable, program, "shmem_init") == expected(1)

    def test_arguments(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="file="):
            shmem.shmem_init(rank=0, nranks=1)
        for rank, nranks in ((0, None), (None, 1), (1, 1), (-1, 2), (0, 0)):
            with pytest.raises(ValueError, match="rank"):
                shmem.shmem_init(file=tmp_path / "meet", rank=rank, nranks=nranks)

    def test_half_of_what_a_launcher_says(self) -> None:
        out = run_script(
            "import mori.shmem as s\ntry: s.shmem_init()\nexcept RuntimeError as err: print(err)", RANK="0"
        )
        assert "WORLD_SIZE" in out


class TestFile:
    def test_ranks_meet(self, tmp_path: Path) -> None:
        code = f"shmem_init(file={str(tmp_path / 'meet')!r}, rank=me, nranks=npes)\n{CHECK}"
        for _ in range(2):
            with Programs(3, code) as programs:
                assert [programs.rest(rank)[1] for rank in range(3)] == expected(3)
            assert list(tmp_path.iterdir()) == [], "the file is gone"

    def test_ranks_that_never_come_are_named(self, tmp_path: Path) -> None:
        code = f"failed(lambda: shmem_init(file={str(tmp_path / 'meet')!r}, rank=me, nranks=4))"
        with Programs(2, code, MORI_BOOTSTRAP_TIMEOUT="2") as programs:
            for rank in range(2):
                assert "2-3" in programs.rest(rank)[1] or "2, 3" in programs.rest(rank)[1]


class TestLaunchers:
    def test_own_variables(self, tmp_path: Path) -> None:
        own = [{"MORI_RANK": str(rank), "MORI_WORLD_SIZE": "2"} for rank in range(2)]
        with Programs(2, f"shmem_init()\n{CHECK}", own, MORI_BOOTSTRAP=str(tmp_path / "meet")) as programs:
            assert [programs.rest(rank)[1] for rank in range(2)] == expected(2)

    @pytest.mark.usefixtures("torch_here")
    def test_torchrun(self, program: Path) -> None:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
        assert launch(*torchrun, program, "shmem_init") == expected(3)

    def ranks(self, size: int, *command: object) -> list[str]:
        said = mpirun(size, sys.executable, *command, **ENVIRONMENT)
        return [line for text in said for line in text.splitlines() if line[:1].isdigit()]

    @pytest.mark.parametrize("call", ["shmem_init", "shmem_mpi_init"])
    def test_mpirun(self, program: Path, call: str) -> None:
        assert self.ranks(3, program, call) == expected(3)

    def test_mpirun_without_mpi4py(self, program: Path) -> None:
        program.write_text("import sys\nsys.modules['mpi4py'] = None\n" + PROGRAM)
        assert self.ranks(2, program, "shmem_mpi_init") == expected(2)

    def test_mpi_init_of_a_single_process(self, program: Path) -> None:
        need_mpi()
        assert launch(sys.executable, program, "shmem_mpi_init") == expected(1)

    def test_mpi_init_by_nothing(self) -> None:
        out = run_script(
            "import sys\nsys.modules['mpi4py'] = None\nimport mori.shmem as s\n"
            "try: s.shmem_mpi_init()\nexcept RuntimeError as err: print(type(err).__name__, err)"
        )
        assert out.startswith("UnsupportedError")
        assert "mpi4py" in out


GROUPS = """
failed(lambda: shmem_torch_process_group_init('mori'))
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method={url!r}, rank=me, world_size=npes)
register = torch._C._distributed_c10d._register_process_group
register("mori", dist.group.WORLD)
groups = [dist.new_group([0, 2]), dist.new_group([1])]
register("default", groups[me % 2])
def check():
{check}
for name in ("mori", "default", "mori"):
    assert shmem_torch_process_group_init(name) == 0
    assert shmem_torch_process_group_init(name) == 0, "again"
    check()
failed(lambda: shmem_torch_process_group_init("none"))
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("torch_here")
def test_torch_process_groups(tmp_path: Path) -> None:
    program = GROUPS.format(url=f"file://{tmp_path}/store", check=CHECK.replace("\n", "\n    "))
    pairs = ["0 2 3", "0 1 1", "1 2 3"]  # those of ranks 0 and 2, and of rank 1 alone
    with Programs(3, program) as programs:
        for rank in range(3):
            status, out, complaints = programs.rest(rank, 50)
            assert status == 0, complaints
            before, *found, unknown = out.splitlines()
            assert "not initialised" in before
            assert found == [expected(3)[rank], pairs[rank], expected(3)[rank]]
            assert "registered as 'none'" in unknown


def test_without_torch() -> None:
    out = run_script(
        "import sys\nsys.modules['torch'] = None\nimport mori.shmem as s\n"
        "try: s.shmem_torch_process_group_init('mori')\nexcept RuntimeError as err: print(type(err).__name__, err)"
    )
    assert out.startswith("UnsupportedError")
    assert "torch" in out
