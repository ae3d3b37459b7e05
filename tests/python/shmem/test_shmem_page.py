# SPDX-License-Identifier: MIT
"""The programs of docs/design/shmem.md run, alone and with others, and the names in it are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import Programs

import gpus
import mori.shmem

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "design" / "shmem.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples(tmp_path: Path, example: str, size: int) -> None:
    own = [{"MORI_RANK": str(rank), "MORI_WORLD_SIZE": str(size)} for rank in range(size)]
    if "torch.cuda" in example:
        gpus.need_cuda_torch()
        own = [{**each, "MORI_SHMEM_DEVICE": "gpu"} for each in own]
    with Programs(size, example, own, MORI_BOOTSTRAP=str(tmp_path / "meet")) as programs:
        for rank in range(size):
            assert programs.rest(rank) == (0, "", "")


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4


def test_names() -> None:
    names = set(re.findall(r"`((?:mori_)?shmem_[a-z_0-9]*[a-z])(?:\(.*?\))?`", PAGE)) - {"shmem_realloc", "shmem_align"}
    assert len(names) > 30
    assert {name for name in names if not hasattr(mori.shmem, name)} == set()
