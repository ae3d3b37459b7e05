#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Say where Python.h of the running Python is, as C compiler flags.

    python tools/pyheaders.py        prints "-I... -I..."

Debian and Ubuntu keep the headers in libpythonX.Y-dev, which may be absent. Then
the package is fetched with `apt-get download`, which needs no root, and unpacked
below build/pyheaders.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHORT = f"{sys.version_info.major}.{sys.version_info.minor}"


class HeadersMissing(Exception):
    """Python.h is missing and could not be fetched; the message says what to install."""


def installed() -> list[Path]:
    """The include folders of a Python that has its headers, or []."""
    paths = sysconfig.get_paths()
    found = [Path(paths["include"]), Path(paths["platinclude"])]
    return list(dict.fromkeys(found)) if (found[0] / "Python.h").exists() else []


def unpacked(tree: Path) -> list[Path]:
    """The include folders in an unpacked libpythonX.Y-dev, or []."""
    include = tree / "usr" / "include" / f"python{SHORT}"
    # pyconfig.h there includes <x86_64-linux-gnu/pythonX.Y/pyconfig.h>, hence the parent.
    return [include, include.parent] if (include / "Python.h").exists() else []


def apt_get(*args: str, cwd: Path) -> bool:
    """Run apt-get in cwd with its output in build/log/apt.log; report whether it succeeded."""
    log = ROOT / "build" / "log" / "apt.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as out:
        command = ["apt-get", *args]
        out.write(f"\n$ {shlex.join(command)}\n")
        out.flush()
        return subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.STDOUT, check=False, timeout=300).returncode == 0


def fetch(tree: Path) -> None:
    """Unpack libpythonX.Y-dev into tree; leave tree unchanged if apt cannot download it."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return
    package = f"libpython{SHORT}-dev"
    work = tree.parent / f"{tree.name}.apt"
    (work / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (work / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    print(f"Python.h is not installed: fetching {package} into {tree.parent}", file=sys.stderr)
    # Container images often have no package lists: download them to a private folder.
    private = ["-o", f"Dir::State::Lists={work}/lists", "-o", f"Dir::Cache={work}/cache", "-o", "APT::Sandbox::User="]
    if apt_get("download", package, cwd=work) or (
        apt_get(*private, "update", cwd=work) and apt_get(*private, "download", package, cwd=work)
    ):
        for deb in work.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg", "-x", str(deb), str(tree)], check=True, timeout=120)
    shutil.rmtree(work, ignore_errors=True)


def include_dirs() -> list[Path]:
    """The folders that a compiler needs to find Python.h."""
    if given := os.environ.get("PYTHON_INCLUDE"):
        return [Path(p) for p in given.split(os.pathsep)]
    tree = ROOT / "build" / "pyheaders" / f"python{SHORT}"
    if dirs := installed() or unpacked(tree):
        return dirs
    fetch(tree)
    if dirs := unpacked(tree):
        return dirs
    raise HeadersMissing(
        f"Python.h of {sys.executable} (Python {SHORT}) is missing and could not be fetched. "
        f"Install it with 'apt-get install python{SHORT}-dev' (Debian, Ubuntu) or 'dnf install python3-devel' "
        f"(Fedora), or set PYTHON_INCLUDE to the folder that holds it."
    )


def cgo_flags() -> str:
    """include_dirs as the text of CGO_CFLAGS; quoted, as cgo reads it like a shell does."""
    return " ".join(f'"-I{path}"' if " " in str(path) else f"-I{path}" for path in include_dirs())


if __name__ == "__main__":
    try:
        print(cgo_flags())
    except HeadersMissing as err:
        sys.exit(f"pyheaders: {err}")
