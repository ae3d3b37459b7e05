#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Build native/examples into build/examples: the library of the host's side, the programs, and their kernels for GPUs.

    python tools/examples.py [NAME ...]     # all of them, or write, send_recv, ...

The programs take Go and a C++ compiler, their kernels for GPUs clang-19 (and lld-19 for AMD's): without it they run on
the CPU only. The library is built with the flags of the Python extension, so that the packages of one are there for the other.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import headerflags
import kernels
import pyheaders

SOURCES = ROOT / "native" / "examples"
PRODUCTS = ROOT / "build" / "examples"
LIBRARY = "libmori_capi.so"


def programs() -> list[str]:
    """Return the names of the examples, each of which is one source."""
    return sorted(path.stem for path in SOURCES.glob("*.cpp"))


def library(out: Path) -> None:
    """Build the host's side."""
    flags = {"CGO_CFLAGS": f"-O2 -g {pyheaders.cgo_flags()}", "CGO_CXXFLAGS": f"-O2 -g {headerflags.cgo_flags()}"}
    command = ["go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(out / LIBRARY)]
    subprocess.run([*command, "./pybind/capi"], cwd=ROOT, env={**os.environ, "CGO_ENABLED": "1", **flags}, check=True)


def program(name: str, out: Path) -> None:
    """Build a program, with its kernels for the CPU in it."""
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-Inative/include"]
    libraries = [f"-L{out}", "-lmori_capi", "-Wl,-rpath,$ORIGIN"]
    source = SOURCES / f"{name}.cpp"
    subprocess.run([os.environ.get("CXX", "g++"), *flags, "-o", str(out / name), str(source), *libraries], cwd=ROOT, check=True)


def gpu_code(name: str, out: Path) -> None:
    """Build a program's kernels for GPUs of both vendors."""
    source = SOURCES / f"{name}.cpp"
    for architecture, flags in kernels.ARCHITECTURES.items():
        suffix, last = ("ptx", ["-S"]) if architecture.startswith("sm_") else ("hsaco", [])
        product = out / f"{name}.{architecture}.{suffix}"
        command = [kernels.COMPILER, *kernels.COMMON, *flags, *last, "-o", str(product), str(source)]
        subprocess.run(command, cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(programs())}")
    parser.add_argument("--out", type=Path, default=PRODUCTS, help="the folder (default: build/examples)")
    parser.add_argument("--cpu", action="store_true", help="leave out the kernels for GPUs")
    args = parser.parse_args()
    if unknown := set(args.names) - set(programs()):
        parser.error(f"no such example: {', '.join(sorted(unknown))}; there are {', '.join(programs())}")
    out = args.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    for_gpus = not args.cpu and shutil.which(kernels.COMPILER) is not None
    if not args.cpu and not for_gpus:
        print(f"examples: {kernels.COMPILER} is not installed: they will run on the CPU only", file=sys.stderr)
    try:
        library(out)
        for name in args.names or programs():
            program(name, out)
            if for_gpus:
                gpu_code(name, out)
    except subprocess.CalledProcessError as err:
        print(f"examples: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
