# SPDX-License-Identifier: MIT
"""Find words that the project has retired (docs/glossary.md says what replaces them).

    python tools/words.py            # the Markdown of the repository
    python tools/words.py core io    # comments and docstrings of Go, C and Python below these folders, too

tools/words.allowed has the number of finds that each file may still have. A file with more of them fails, and so does
one with fewer, until its number is lowered: the list can only shrink.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = ROOT / "tools" / "words.allowed"

RETIRED = {
    r"inquests?|mourning|partings": "timeout diagnosis, grace period",
    r"last ?words|\bbyes": "final frame, goodbye",
    r"borrowers?|lenders?|loans?|lent": "grant, granter, holder",
    r"greetings?|greets?|greeted": "handshake",
    r"desks?": "atomic server",
    r"rouses?|roused|heeds?|heeded": "wake, check",
    r"tells|told|telling": "reports, notifies; reported",
    r"whoever|to whom|of whom": "name the actor: the caller, the receiver, the poller",
    r"there (?:is|are) none|which there are none": "not supported, no ...",
    r"seldom": "rarely; exponential back-off",
    r"what (?:is|was|has been) (?:lent|told|not there)": "name the thing",
    r"brings? (?:it|them) back|(?:is|are|was|were) mended|mends": "fix, restore",
    r"goes? on": "continue",
    r"meet(?:s|ing)?": "synchronise, rendezvous, handshake",
    r"fate": "shutdown",
}
_WORD = re.compile("|".join(f"(?P<w{i}>\\b(?:{word})\\b)" for i, word in enumerate(RETIRED)), re.IGNORECASE)
_HINTS = list(RETIRED.values())
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|`[^`]*`|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_SUFFIXES = {".go", ".c", ".h", ".hpp", ".cpp", ".cu", ".py"}
_SKIPPED = ("docs/glossary.md", "docs/reference/", "python/mori/_native/", "tools/words.py")


def blank(match: re.Match[str]) -> str:
    """The same number of empty lines."""
    return "\n" * match[0].count("\n")


def markdown(text: str) -> str:
    """The prose of a page: fenced code and inline code are left out."""
    text = re.sub(r"^```.*?^```", blank, text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", text)


def c_comments(text: str) -> str:
    """The comments of Go or C."""
    out, end = [], 0
    for match in _COMMENT.finditer(text):
        out.append("\n" * text.count("\n", end, match.start()))
        out.append(match[0] if match[0].startswith(("//", "/*")) else blank(match))
        end = match.end()
    return "".join(out)


def python_comments(text: str) -> str:
    """The comments and docstrings of Python."""
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] += token.string
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or not node.body:
            continue
        match node.body[0]:
            case ast.Expr(value=ast.Constant(value=str())) as first:
                for i, line in enumerate(text.splitlines()[first.lineno - 1 : first.end_lineno]):
                    lines[first.lineno + i] += line
    return "\n".join(lines[1:])


def finds(name: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Line, word and replacement of every retired word of a file."""
    suffix = Path(name).suffix
    prose = markdown(text) if suffix == ".md" else python_comments(text) if suffix == ".py" else c_comments(text)
    for number, line in enumerate(prose.splitlines(), 1):
        for match in _WORD.finditer(line):
            yield number, match[0], _HINTS[int((match.lastgroup or "w0")[1:])]


def allowed() -> dict[str, int]:
    """How many finds each file may have."""
    lines = (line.split() for line in ALLOWED.read_text(encoding="utf-8").splitlines() if line and line[0] != "#")
    return {name: int(number) for number, name in lines}


def files(folders: Iterable[str]) -> list[str]:
    """All Markdown, and the sources below the folders."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    below = tuple(f"{folder.rstrip('/')}/" for folder in folders)
    return sorted(
        name
        for name in set(done.stdout.splitlines())
        if (ROOT / name).is_file() and not name.startswith(_SKIPPED)
        and (name.endswith(".md") or (below and name.startswith(below) and Path(name).suffix in _SUFFIXES))
    )  # fmt: skip


def main(folders: list[str]) -> int:
    may, wrong = allowed(), 0
    names = files(folders)
    for name in names:
        found = list(finds(name, (ROOT / name).read_text(encoding="utf-8")))
        limit = may.pop(name, 0)
        if len(found) > limit:
            wrong += 1
            print(f"{name}: {len(found)} retired words, {limit} allowed")
            print("".join(f"  {name}:{number}: {word!r}: {hint}\n" for number, word, hint in found), end="")
        elif len(found) < limit:
            wrong += 1
            print(f"{name}: {len(found)} retired words: lower its {limit} in tools/words.allowed")
    for name in may:
        if not (ROOT / name).exists():
            wrong += 1
            print(f"{name} is gone: take it out of tools/words.allowed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
