# SPDX-License-Identifier: MIT
"""The programs of docs/guides run and print what the guides say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import need_torch

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def program(guide: str) -> str:
    (found,) = re.findall(r"```python\n(.*?)```", (GUIDES / guide).read_text(), re.DOTALL)
    return str(found)


def start(*command: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def output(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    return out.strip()


def test_transfer_between_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    script = tmp_path / "transfer.py"
    script.write_text(
        program("io.md").replace("(sys.argv[3], 7878)", repr(str(tmp_path / "socket")))
        # The client may be first: it waits for the socket.
        .replace("with Client(", f"import os, time\n    while not os.path.exists({str(tmp_path / 'socket')!r}):\n"
        "        time.sleep(0.05)\n    with Client(")
    )  # fmt: skip
    decode, prefill = (start(script, role, "127.0.0.1", "127.0.0.1") for role in ("decode", "prefill"))
    try:
        assert output(prefill).startswith("prefill: SUCCESS shm/")
        assert output(decode) == "decode has 8192 0"
    finally:
        decode.kill()
        decode.wait()


def test_offload() -> None:
    pytest.importorskip("numpy")
    assert output(start("-c", program("kv-offload.md"))) == "SUCCESS True"


def test_torch_alone() -> None:
    need_torch()
    assert output(start("-c", program("torch.md"))).startswith("PE 0 of 1: row on ")
