# SPDX-License-Identifier: MIT
"""The checks of the documentation find what they are for, and docs/reference is what the code says."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse of Python 3.13 formats options differently")
def test_reference_is_up_to_date() -> None:
    command = [sys.executable, ROOT / "tools" / "docs_reference.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere(tmp_path: Path) -> None:
    check = tool("markdown")
    (tmp_path / "there.md").write_text("# One `two` thing: 3\n")
    (tmp_path / "page.md").write_text(
        "[good](there.md#one-two-thing-3) [gone](gone.md) `[code](no.md)`\n[no](there.md#four) [web](https://a.b/c)\n"
    )
    assert list(check.broken(tmp_path, "page.md")) == [
        "page.md:1: gone.md leads nowhere",
        "page.md:2: there.md has no heading #four",
    ]


def test_wide_lines_are_found() -> None:
    check = tool("markdown")
    words = "word " * 21
    assert check.wide(f"{words}\n| {words} |\n```\n{words}\n```\n{'x' * 120}\n[a](https://{'y' * 120})\n") == [1]


def test_the_repository_passes() -> None:
    assert list(tool("markdown").problems(ROOT)) == []


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.md", "It tells.\n`tells`\n```\ntells\n```\nThe desk.\n", [1, 6]),
        ("a.go", '// it tells\nx := "tells" // fine\n/* a\n desk */\n', [1, 4]),
        ("a.py", '"""A desk."""\nx = "tells"  # tells\n', [1, 2]),
    ],
)
def test_retired_words_are_found(name: str, text: str, lines: list[int]) -> None:
    assert [line for line, _, _ in tool("words").finds(name, text)] == lines
