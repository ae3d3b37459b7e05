# SPDX-License-Identifier: MIT
"""The programs of docs/design/ep.md do what the page says, alone and in several ranks; what it names is there."""

from __future__ import annotations

import builtins
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mori import _core, _errors
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineKernelType, EpDispatchCombineOp, _op, _standard

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "design" / "ep.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_there_are_programs() -> None:
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize(("ranks", "hosts"), [(1, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("program", PROGRAMS, ids=["dispatch and combine", "two phases"])
def test_a_program_runs(program: str, ranks: int, hosts: int, tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "MORI_RANK": str(rank),
                "MORI_WORLD_SIZE": str(ranks),
                "MORI_BOOTSTRAP": str(tmp_path / "meet"),
                "MORI_SHMEM_HEAP_SIZE": "64M",
                "MORI_NODE_ID": f"host {rank % hosts}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        for rank, process in enumerate(running):
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            assert out.startswith(f"rank {rank} of {ranks}: ")
    finally:
        for process in running:
            process.kill()
            process.wait()


def rows_of(head: str) -> list[list[str]]:
    """The cells of the table whose first column has this name."""
    lines = PAGE[PAGE.index(f"| {head} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_kernel_types_is_the_code_s() -> None:
    table = {row[0]: tuple(bool(cell) for cell in row[1:]) for row in rows_of("kernel type")}
    assert table == {
        member.name: (
            member is EpDispatchCombineKernelType.AsyncLL,
            member in _op._WITH_ROUTING,
            member in _standard._SERVED,
        )
        for member in EpDispatchCombineKernelType
    }


def test_the_variables_are_those_that_mori_env_has() -> None:
    known = {v["name"]: v["default"] for v in json.loads(_core.call("Environment"))}
    for name, default, _ in rows_of("variable"):
        assert name.strip("`") in known
        if default.isdigit() or default.isupper():
            assert known[name.strip("`")] == default


def test_names_in_code_are_there() -> None:
    for name in re.findall(r"`op\.(\w+)", PAGE):
        assert hasattr(EpDispatchCombineOp, name), name
    for name in re.findall(r"`(\w+Error)`", PAGE):
        assert hasattr(_errors, name) or hasattr(builtins, name), name
    assert EpDispatchCombineConfig.__dataclass_fields__["max_total_recv_tokens"].default == 0
