#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Build native/examples into build/examples: the library of the host's side, the programs, and their kernels for GPUs.

    python tools/examples.py [NAME ...]     # all of them, or write, send_recv, ...

The programs take Go and a C++ compiler, their kernels for GPUs clang-19 (and lld-19 for AMD's): without it they run on
the CPU only. The library is built with the flags of the Python extension, so that what is compiled for one is there for
the other.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gotool
import kernels

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "native" / "examples"
PRODUCTS = ROOT / "build" / "examples"
LIBRARY = "libmori_capi.so"


def programs() -> list[str]:
    """Return the names of the examples, each of which is one source."""
    return sorted(path.stem for path in SOURCES.glob("*.cpp"))


def library(out: Path) -> None:
    """Build the host library. build_ext.py explains why only the linker makes a library."""
    command = ["go", "build", "-buildvcs=false", "-ldflags=-buildmode=c-shared -s -w", "-o", str(out / LIBRARY)]
    subprocess.run([*command, "./pybind/capi"], cwd=ROOT, env=gotool.environment(), check=True)


def fresh(product: Path) -> bool:
    """Report whether a product is newer than all sources of the programs."""
    sources = [path for folder in ("examples", "include") for path in (ROOT / "native" / folder).rglob("*.[ch]*")]
    return product.exists() and product.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def program(name: str, out: Path) -> None:
    """Build a program, with its kernels for the CPU in it."""
    if fresh(out / name):
        return
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-Inative/include"]
    libraries = [f"-L{out}", "-lmori_capi", "-Wl,-rpath,$ORIGIN"]
    command = [os.environ.get("CXX", "g++"), *flags, "-o", str(out / name), str(SOURCES / f"{name}.cpp"), *libraries]
    subprocess.run(command, cwd=ROOT, check=True)


def gpu_code(name: str, architecture: str, out: Path) -> None:
    """Build a program's kernels for one GPU architecture."""
    source = SOURCES / f"{name}.cpp"
    suffix, last = ("ptx", ["-S"]) if architecture.startswith("sm_") else ("hsaco", [])
    product = out / f"{name}.{architecture}.{suffix}"
    flags = [*kernels.COMMON, *kernels.ARCHITECTURES[architecture], *last]
    if not fresh(product):
        subprocess.run([kernels.COMPILER, *flags, "-o", str(product), str(source)], cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(programs())}")
    parser.add_argument("--out", type=Path, default=PRODUCTS, help="the folder (default: build/examples)")
    known = ",".join(kernels.ARCHITECTURES)
    parser.add_argument("--gpus", default=known, help=f"kinds of GPUs to build kernels for, or none (default: {known})")
    args = parser.parse_args()
    kinds = [kind for kind in args.gpus.split(",") if kind not in ("", "none")]
    if unknown := set(kinds) - set(kernels.ARCHITECTURES):
        parser.error(f"no such GPUs: {', '.join(sorted(unknown))}; there are {known}")
    if unknown := set(args.names) - set(programs()):
        parser.error(f"no such example: {', '.join(sorted(unknown))}; there are {', '.join(programs())}")
    if kinds and shutil.which(kernels.COMPILER) is None:
        print(f"examples: {kernels.COMPILER} is not installed: they will run on the CPU only", file=sys.stderr)
        kinds = []
    out = args.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several processes build at once
        try:
            library(out)
            for name in args.names or programs():
                program(name, out)
                for kind in kinds:
                    gpu_code(name, kind, out)
        except subprocess.CalledProcessError as err:
            print(f"examples: {err}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
