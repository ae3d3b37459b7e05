# SPDX-License-Identifier: MIT
"""Check the Markdown of the repository: columns, and links within it. Needs no network.

    python tools/markdown.py

A line has at most 100 columns, except in tables, in code, and where one word or link is longer. A link to a file or a
heading of the repository must lead there. WIDE lists files that are not wrapped yet; the list may only shrink.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 100
WIDE = {"tests/rdma/vm/README.md"}

_FENCE = re.compile(r"^\s*(```|~~~)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`]*`")


def pages(root: Path) -> list[str]:
    """The Markdown files that git has or would add."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=root, capture_output=True, text=True, check=True
    )
    return sorted(name for name in set(done.stdout.splitlines()) if (root / name).exists())


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines outside of fenced code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def wide(text: str) -> list[int]:
    """The numbers of the lines that have too many columns and could be wrapped."""
    found = []
    for number, line in prose(text):
        if len(line) <= COLUMNS or line.lstrip().startswith(("|", "#", "<!--")) or line.startswith("    "):
            continue
        if " " in _LINK.sub("x", line.strip()[2:]):
            found.append(number)
    return found


def slug(heading: str) -> str:
    """The anchor that GitHub and the site give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of a page."""
    return {slug(line.lstrip("#")) for _, line in prose(text) if re.match(r"#{1,6} ", line)}


def broken(root: Path, name: str) -> Iterator[str]:
    """What is wrong with the links of a page."""
    for number, line in prose((root / name).read_text(encoding="utf-8")):
        for target in _LINK.findall(_CODE.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = ((root / name).parent / path).resolve() if path else root / name
            if not file.exists():
                yield f"{name}:{number}: {target} leads nowhere"
            elif anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text(encoding="utf-8"))):
                yield f"{name}:{number}: {path or name} has no heading #{anchor}"


def problems(root: Path) -> Iterator[str]:
    """Everything that is wrong."""
    for name in pages(root):
        text = (root / name).read_text(encoding="utf-8")
        lines = wide(text)
        if name in WIDE and not lines:
            yield f"{name}: is wrapped now: take it out of WIDE in tools/markdown.py"
        elif name not in WIDE:
            yield from (f"{name}:{number}: more than {COLUMNS} columns" for number in lines)
        yield from broken(root, name)


def main() -> int:
    found = list(problems(ROOT))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
