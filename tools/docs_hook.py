# SPDX-License-Identifier: MIT
"""What the site of the documentation needs beside docs: the files of the root, and docstrings as Markdown.

mkdocs loads this file as a hook, mkdocstrings as an extension of griffe.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
FROM_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")

_ROLE = re.compile(r":(?:class|meth|func|mod|attr|data|exc):`~?([\w.]+)`")
_LITERAL = re.compile(r"::$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that live in the root of the repository; their links to docs become relative to it."""
    for name in FROM_ROOT:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        text = text.replace("](README.md", "](index.md").replace("](LICENSE)", "](index.md)")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs for the root to the pages that on_files adds."""
    here = page.file.src_uri.count("/")
    for name in FROM_ROOT:
        markdown = markdown.replace(f"]({'../' * (here + 1)}{name}", f"]({'../' * here}{name}")
    return markdown


class Docstrings(griffe.Extension):
    """Turns the reStructuredText of the docstrings into Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _LITERAL.sub(":", _ROLE.sub(r"`\1`", obj.docstring.value))
