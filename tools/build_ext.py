#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Build python/mori/_native/_moricore.<tag>.so for the Python that runs this file.

    python tools/build_ext.py [--dest DIR] [--force]

gopy is used only to generate code. This file drives the steps itself because
`gopy build` compiles all C with -ffast-math, links twice, leaves a RUNPATH and
rewrites go.mod. The steps are:

    gopy gen    pybind/*.go  -> build/_gopy/<tag>/{moricore.go, build.py}
    goimports   tidies moricore.go; its #cgo lines are replaced by ours
    cgo         moricore.go  -> moricore_go.h
    pybindgen   build.py     -> moricore.c
    go build    everything   -> _moricore.<tag>.so, PyInit the only symbol it shows

With -buildmode=c-shared the go command compiles the C of all packages each time, to make a header
that we have. So it builds a PIE, whose code is the same, and only the linker makes the library.

Nothing is done when no input changed since the last build. Needs go, a C
compiler, Python.h (see pyheaders.py) and the pybindgen module.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gotool
import pyheaders

ROOT = Path(__file__).resolve().parent.parent
NAME = "moricore"
PACKAGE = "mori/pybind"
# With what the next steps run: the go command compiles all at once.
COMPILE = ["go", "build", PACKAGE, "github.com/go-python/gopy", "golang.org/x/tools/cmd/goimports"]
STEPS = 6
SOURCE_DIRS = ("core", "io", "shmem", "ep", "native", "pybind")
SOURCE_SUFFIXES = {".go", ".c", ".h", ".cc", ".cpp", ".hpp", ".s", ".S", ".html", ".css", ".js"}

# pybindgen's C is old-fashioned: it names functions before the header of the
# Go side declares them with the same types.
WARNINGS = "-Wno-implicit-function-declaration -Wno-int-conversion -Wno-discarded-qualifiers"


class BuildError(Exception):
    """A build step failed; the message names the step and its log."""


def ext_suffix() -> str:
    """The file suffix of extensions for this Python, such as .cpython-311-x86_64-linux-gnu.so."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def tag() -> str:
    """A name for this Python that keeps build folders apart, such as cpython-311-x86_64-linux-gnu."""
    return ext_suffix().strip(".").removesuffix(".so")


def sources() -> list[Path]:
    """Every file whose content can change the extension, in a stable order."""
    found = [ROOT / "go.mod", ROOT / "go.sum", Path(__file__).resolve()]
    for top in SOURCE_DIRS:
        found += [
            path
            for path in sorted((ROOT / top).rglob("*"))
            if path.suffix in SOURCE_SUFFIXES and not path.name.endswith("_test.go")
        ]
    return found


def digest(paths: list[Path], *more: str) -> str:
    """One hash over names and contents of paths and over the strings in more."""
    h = hashlib.sha256()
    for path in paths:
        h.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    for text in more:
        h.update(text.encode() + b"\0")
    return h.hexdigest()


def read(path: Path) -> str:
    """The text of path, or "" without one."""
    return path.read_text() if path.exists() else ""


class Build:
    """One build of the extension for the running Python."""

    def __init__(self) -> None:
        # The path element _gopy keeps generated code out of ./... patterns.
        self.work = ROOT / "build" / "_gopy" / tag()
        self.log = ROOT / "build" / "log" / f"ext-{tag()}.log"
        self.env = dict(os.environ)
        self.step_number = 0

    def prepare(self) -> None:
        """Check the tools and set the environment of all steps."""
        if shutil.which("go") is None:
            raise BuildError("go is not on PATH: install Go 1.24 or later (https://go.dev/dl)")
        if importlib.util.find_spec("pybindgen") is None:
            raise BuildError(f"pybindgen is missing: {sys.executable} -m pip install pybindgen==0.22.1")
        self.env = gotool.environment()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")

    def step(self, what: str, command: list[str], cwd: Path = ROOT) -> None:
        """Run one command with its output in the log; show the end of the log if it fails."""
        self.step_number += 1
        print(f"  [{self.step_number}/{STEPS}] {what}", flush=True)
        with self.log.open("a") as log:
            log.write(f"\n$ {shlex.join(command)}\n")
            log.flush()
            done = subprocess.run(command, cwd=cwd, env=self.env, stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            tail = "\n".join(self.log.read_text().splitlines()[-40:])
            raise BuildError(f"{what}: exit status {done.returncode}\n{tail}\nwhole log: {self.log}")

    def generate(self) -> None:
        """Make moricore.go, moricore_go.h and moricore.c, unless pybind is unchanged."""
        stamp = self.work / "generated.sha256"
        inputs = [p for p in sources() if p.parent == ROOT / "pybind"]
        want = digest([*inputs, ROOT / "go.mod", Path(__file__).resolve()], sys.executable)
        if read(stamp) == want and (self.work / f"{NAME}.c").exists():
            self.step_number = STEPS - 1
            return
        # gopy continues with what it understood of a package that does not compile.
        self.step("go build pybind", COMPILE)
        for old in self.work.iterdir():
            if old.is_file() and old.name != "lock":
                old.unlink()
        main = self.work / f"{NAME}.go"
        self.step("gopy gen", ["go", "tool", "gopy", "gen", f"-vm={sys.executable}", f"-output={self.work}",
                               f"-name={NAME}", "-no-make=true", "-dynamic-link=true", PACKAGE])
        self.check_exposed()
        main.write_text(own_cgo_lines(main.read_text()))
        self.step("goimports", ["go", "tool", "goimports", "-w", str(main)])
        objects = self.work / "cgo"
        self.step("cgo header", ["go", "tool", "cgo", "-objdir", str(objects), "-exportheader",
                                 str(self.work / f"{NAME}_go.h"), "--", *shlex.split(self.env["CGO_CFLAGS"]),
                                 main.name], cwd=self.work)
        shutil.rmtree(objects, ignore_errors=True)
        self.step("pybindgen", [sys.executable, "-W", "ignore", "build.py"], cwd=self.work)
        stamp.write_text(want)

    def check_exposed(self) -> None:
        """Raise if gopy skipped functions of pybind, which it only mentions in its log."""
        bound = set(re.findall(r"'pybind_(\w+)'", (self.work / "build.py").read_text()))
        wanted: set[str] = set()
        for path in (ROOT / "pybind").glob("*.go"):
            if not path.name.endswith("_test.go"):
                wanted |= set(re.findall(r"^func ([A-Z]\w*)\(", path.read_text(), re.MULTILINE))
        if missing := sorted(wanted - bound):
            raise BuildError(f"gopy cannot bind pybind.{', pybind.'.join(missing)}: see pybind/doc.go, log {self.log}")

    def link(self, made: Path) -> None:
        """Compile and link."""
        exports = self.work / "exports.map"
        exports.write_text(f"{{ global: PyInit__{NAME}; local: *; }};\n")
        self.step("go build extension", ["go", "build", "-buildvcs=false",
                               f"-ldflags=-buildmode=c-shared -s -w '-extldflags=-Wl,--version-script={exports}'",
                               "-o", str(made), "."], cwd=self.work)


def put(made: Path, output: Path) -> None:
    """Copy ``made`` to ``output`` with one rename, so that a reader never sees half a file."""
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    shutil.copy2(made, beside)
    beside.replace(output)


def own_cgo_lines(text: str) -> str:
    """Replace gopy's #cgo lines: include paths come from CGO_CFLAGS, and Python is never linked."""
    lines = [line for line in text.splitlines() if not line.startswith("#cgo LDFLAGS")]
    return "\n".join(f"#cgo CFLAGS: {WARNINGS}" if line.startswith("#cgo CFLAGS") else line for line in lines) + "\n"


@contextlib.contextmanager
def alone(work: Path) -> Iterator[None]:
    """Hold the lock of the build folder, so that two makes in one tree run one after the other."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(dest: Path, force: bool = False) -> Path:
    """Build the extension into the folder dest and return the path of the .so."""
    run = Build()
    with alone(run.work):
        return build_alone(run, dest / f"_{NAME}{ext_suffix()}", force)


def build_alone(run: Build, output: Path, force: bool) -> Path:
    """build, with the lock held."""
    stamp = run.work / "linked.sha256"
    want = digest(sources(), sys.executable, sys.version)
    made = run.work / output.name
    if not force and read(stamp) == want and made.exists():
        if not output.exists() or output.stat().st_mtime != made.stat().st_mtime:
            put(made, output)
        print(f"extension for {tag()} is up to date")
        return output
    print(f"building the extension for {tag()} (log: {run.log.relative_to(ROOT)})", flush=True)
    started = time.monotonic()
    run.prepare()
    stamp.unlink(missing_ok=True)
    run.generate()
    run.link(made)
    put(made, output)
    stamp.write_text(want)
    print(f"  {output} in {time.monotonic() - started:.0f} s", flush=True)
    return output


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the Python extension for this Python.")
    parser.add_argument("--dest", type=Path, default=ROOT / "python" / "mori" / "_native")
    parser.add_argument("--force", action="store_true", help="build even when nothing changed")
    parser.add_argument("--compile", action="store_true",
                        help="only compile the Go packages, for a build to come; it needs no Python package")
    args = parser.parse_args()
    try:
        if args.compile:
            return subprocess.run(COMPILE, cwd=ROOT, env=gotool.environment(), check=False).returncode
        build(args.dest.resolve(), args.force)
    except (BuildError, pyheaders.HeadersMissing) as err:
        print(f"build_ext: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
