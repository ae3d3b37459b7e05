#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Build what tests/gpu/run needs besides this tree, for a machine that has GPUs and no Go: build/gpu/bundle.tar.xz.

    python tools/gpu_bundle.py [--python python3.12] [--all]

    ext/_moricore.*.so     the extension, for the Python of that machine
    bin/core.device.test   the test program of each Go package whose tests use a GPU, named by its folder

Copy the tree with the file in it, and run tests/gpu/run there. Its C library must be as new as the one here.

With --all the file is build/steady/bundle.tar.xz and has the test programs of all packages, as tools/steady.py --from
reads them.
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gotool

ROOT = Path(__file__).resolve().parent.parent
TESTED = ("core", "native", "io", "shmem", "ep")
# Packages whose tests use a GPU in another way than the one that packages() searches for.
ALSO = {"core/device", "native/gpu"}
MOST_MIB = 50


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a command in the tree and return what it printed; if it does not end well, show that and end this program."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **(env or {})}, text=True, capture_output=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"gpu_bundle: exit status {done.returncode} from {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def interpreter(name: str, work: Path) -> Path:
    """Return a Python like the one named, in an environment with what building the extension needs."""
    env = {"PYTHON": name}
    if shutil.which("pyenv"):  # which shows the versions that were chosen, unless all are given
        env["PYENV_VERSION"] = ":".join(run("pyenv", "versions", "--bare").split())
    base = run("tools/find-python", env=env).strip()
    python = work / "bin" / "python"
    if not python.exists():
        run(base, "-m", "venv", work)
        pins = (ROOT / "requirements-dev.txt").read_text()
        pinned = re.findall(r"^(?:pybindgen|setuptools)==\S+", pins, re.MULTILINE)
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pinned)
    return python


def packages() -> list[str]:
    """Return the folders of the Go packages whose tests use a GPU."""
    found = set(ALSO)
    for top in TESTED:
        for path in (ROOT / top).rglob("*_test.go"):
            if '"mori/native/gpu/gputest"' in path.read_text():
                found.add(path.parent.relative_to(ROOT).as_posix())
    return sorted(found)


def build_tests(dest: Path) -> None:
    """Compile the test programs, without the symbols that only a debugger reads."""
    shutil.rmtree(dest, ignore_errors=True)
    dest.mkdir(parents=True)
    for package in packages():
        program = dest / f"{package.replace('/', '.')}.test"
        run("go", "test", "-c", "-ldflags=-s -w", "-o", program, f"./{package}", env=gotool.environment())
        print(f"  {program.stat().st_size / 2**20:5.1f} MiB {program.relative_to(ROOT)}", flush=True)


def build_all_tests(dest: Path) -> None:
    """Compile the test programs of all packages, and the program that makes events of their output."""
    shutil.rmtree(dest, ignore_errors=True)
    dest.mkdir(parents=True)
    run("go", "build", "-ldflags=-s -w", "-o", dest / "test2json", "cmd/test2json")
    listed = run("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...",
                 env=gotool.environment())
    for package in listed.split():
        program = dest / f"{package.replace('/', '.')}.test"
        run("go", "test", "-c", "-ldflags=-s -w", "-o", program, package, env=gotool.environment())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="the test programs of all packages, for tools/steady.py")
    parser.add_argument("--python", default="python3.12", help="of that machine's version (default: %(default)s)")
    args = parser.parse_args()
    name = "steady" if args.all else "gpu"
    parts, bundle = ROOT / "build" / f"{name}-parts", ROOT / "build" / name / "bundle.tar.xz"
    python = interpreter(args.python, ROOT / "build" / f"venv-{Path(args.python).name}")
    shutil.rmtree(parts / "ext", ignore_errors=True)
    print(run(python, "tools/build_ext.py", "--dest", parts / "ext"), end="", flush=True)
    (build_all_tests if args.all else build_tests)(parts / "bin")
    bundle.parent.mkdir(parents=True, exist_ok=True)
    # The programs have most of their code in common: a window over several of them leaves a third of what gzip does.
    window = [{"id": lzma.FILTER_LZMA2, "preset": 2, "dict_size": 64 << 20}]
    with lzma.open(bundle, "wb", filters=window) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("ext", "bin"):
            archive.add(parts / name, name)
    mib = bundle.stat().st_size / 2**20
    print(f"{bundle.relative_to(ROOT)}: {mib:.0f} MiB")
    if mib > MOST_MIB:
        sys.exit(f"gpu_bundle: more than {MOST_MIB} MiB is too much to carry")


if __name__ == "__main__":
    main()
