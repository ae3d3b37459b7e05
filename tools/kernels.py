#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compile native/kernels for the GPUs of both vendors into python/mori/_kernels.

The products are committed, so that neither users nor most builds need a compiler of GPU code: PTX, which NVIDIA's
driver translates for its GPU, and AMD code objects. manifest.json names the sources and the compiler. Where
PTX for sm_90 has the same code as for sm_80, only the latter is kept, and loaders take it for both. clang-19 and
lld-19 are all it takes (Debian and Ubuntu have both), no CUDA, no ROCm.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "native" / "kernels"
HEADERS = ROOT / "native" / "include"
PRODUCTS = ROOT / "python" / "mori" / "_kernels"
MANIFEST = "manifest.json"
COMPILER = "clang++-19"
LINKER = "ld.lld-19"

COMMON = ["-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror", "-fno-ident", "-Inative/include"]
CUDA = ["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib"]
HIP = ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-fuse-cuid=none"]
# Functions that are called would keep registers in accumulation registers, which count on top of a kernel's own: too
# many for its blocks.
HIP += ["-mllvm", "-amdgpu-spill-vgpr-to-agpr=0"]
ARCHITECTURES = {
    # Drivers of CUDA 11.4 and later read PTX 7.4; bulk copies are of PTX 8.0, which wants one of CUDA 12.0.
    "sm_80": [*CUDA, "--cuda-gpu-arch=sm_80", "--cuda-feature=+ptx74"],
    "sm_90": [*CUDA, "--cuda-gpu-arch=sm_90", "--cuda-feature=+ptx80"],
    "gfx90a": [*HIP, "--offload-arch=gfx90a"],
    "gfx942": [*HIP, "--offload-arch=gfx942"],
}
# Functions to link with kernels of users, as LLVM bitcode; code for sm_80 works on all later GPUs.
# Relocatable AMD code keeps functions that no kernel calls.
LIBRARIES = ["shmem/library.cpp"]
LIBRARY_ARCHITECTURES = {
    "sm_80": [*ARCHITECTURES["sm_80"], "-S", "-emit-llvm"],
    "gfx90a": [*ARCHITECTURES["gfx90a"], "-fgpu-rdc", "-S", "-emit-llvm"],
    "gfx942": [*ARCHITECTURES["gfx942"], "-fgpu-rdc", "-S", "-emit-llvm"],
}
# What a library may not say of the module that it is linked with, and what is a program's: flags of other values are a
# conflict (Triton has its own for denormal floats), and a function for another processor is never inlined.
NOT_OF_A_LIBRARY = re.compile(r"^(!llvm\.module\.flags|@llvm\.compiler\.used|@__hip_cuid_) .*\n", re.MULTILINE)
PTX_HEAD = re.compile(r"^\.(version|target) .*\n", re.MULTILINE)
PROCESSOR = re.compile(r' "target-(cpu|features)"="[^"]*"')


class CannotCompile(Exception):
    """The compiler is missing, or it refused a kernel."""


def kernels() -> list[Path]:
    """Return the sources; each is one module of the driver, or a library."""
    return sorted(path for path in SOURCES.rglob("*.cpp") if "testdata" not in path.parts)


def products(source: Path) -> dict[str, list[str]]:
    """Return the files that a source becomes, each with its compiler's flags: io_copy_blocks.sm_90.ptx and so on."""
    place = source.relative_to(SOURCES)
    name = "_".join(place.with_suffix("").parts)
    if place.as_posix() in LIBRARIES:
        return {f"{name}.{architecture}.bc": flags for architecture, flags in LIBRARY_ARCHITECTURES.items()}
    made = {}
    for architecture, flags in ARCHITECTURES.items():
        if architecture.startswith("sm_"):
            made[f"{name}.{architecture}.ptx"] = [*flags, "-S"]
        else:
            made[f"{name}.{architecture}.hsaco"] = flags
    return made


def compiler() -> tuple[str, str]:
    """Return the compiler's path and the version that it reports."""
    found = shutil.which(COMPILER)
    if found is None:
        raise CannotCompile(f"clang-19 is not installed: no {COMPILER} in PATH")
    if shutil.which(LINKER) is None:
        raise CannotCompile(f"lld-19 is not installed: no {LINKER} in PATH")
    version = subprocess.run([found, "--version"], check=True, capture_output=True, text=True, timeout=60)
    return found, version.stdout.splitlines()[0]


def assembly(source: Path, architecture: str) -> str:
    """Return the instructions that a kernel becomes, as text; a library's are LLVM's."""
    if source.relative_to(SOURCES).as_posix() in LIBRARIES:
        return _library(LIBRARY_ARCHITECTURES[architecture], source)
    return _run([*ARCHITECTURES[architecture], "-S", "-o", "-"], source)


def _library(flags: list[str], source: Path) -> str:
    text = _run([*flags, "-o", "-"], source)
    return PROCESSOR.sub("", NOT_OF_A_LIBRARY.sub("", text))


def _bitcode(text: str, product: Path) -> None:
    """Write LLVM's assembly as bitcode."""
    [triple] = re.findall(r'^target triple = "(.*)"$', text, re.MULTILINE)
    flags = [f"--target={triple}", "-nogpulib", "-x", "ir", "-c", "-emit-llvm", "-Xclang", "-disable-llvm-passes"]
    _compile([*flags, "-o", str(product), "-"], text)


def _product(job: tuple[Path, Path, list[str]]) -> None:
    """Compile a source to a product with the compiler's flags."""
    source, product, flags = job
    if product.suffix == ".bc":
        _bitcode(_library(flags, source), product)
    else:
        _run([*flags, "-o", str(product)], source)
    product.chmod(0o644)


def build(dest: Path) -> None:
    """Compile every kernel for every architecture into ``dest`` and write the manifest."""
    version = compiler()[1]
    dest.mkdir(parents=True, exist_ok=True)
    jobs = [(source, dest / name, flags) for source in kernels() for name, flags in products(source).items()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_product, jobs))
    made = {product.name: _digest(product) for _, product, _ in jobs}
    for name in redundant(dest, made):
        del made[name]
    manifest = {"compiler": version, "sources": sources(), "products": made}
    (dest / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    for there in files(dest):
        if there.name not in made:
            there.unlink()


def redundant(folder: Path, names: Iterable[str]) -> list[str]:
    """Return the PTX files for sm_90 that have the same code as the ones for sm_80."""
    newer = [name for name in names if name.endswith(".sm_90.ptx")]
    return [name for name in newer if _code(folder / name) == _code(folder / name.replace("sm_90", "sm_80"))]


def _code(ptx: Path) -> str:
    """Return the text of a PTX file without its version and target."""
    return PTX_HEAD.sub("", ptx.read_text())


def files(folder: Path) -> list[Path]:
    """Return the products in a folder."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".ptx", ".hsaco", ".bc"))


def sources() -> dict[str, str]:
    """Return the digest of each file that goes into the products."""
    files = sorted([*SOURCES.rglob("*.cpp"), *HEADERS.rglob("*.hpp")])
    return {path.relative_to(ROOT).as_posix(): _digest(path) for path in files if "testdata" not in path.parts}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(flags: list[str], source: Path) -> str:
    # Relative paths and no locale: the products depend on the sources alone.
    return _compile([*COMMON, *flags, source.relative_to(ROOT).as_posix()])


def _compile(arguments: list[str], text: str | None = None) -> str:
    """Run the compiler, with text to read, and return what it printed."""
    command = [compiler()[0], *arguments]
    ended = subprocess.run(
        command, cwd=ROOT, input=text, capture_output=True, text=True, timeout=300, env={**os.environ, "LC_ALL": "C"}
    )
    if ended.returncode != 0:
        raise CannotCompile(f"{' '.join(command)}: exit status {ended.returncode}\n{ended.stderr}")
    return ended.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dest", type=Path, default=PRODUCTS, help="where the products go (default: %(default)s)")
    dest = parser.parse_args().dest
    try:
        build(dest)
    except CannotCompile as err:
        sys.exit(f"error: {err}")
    for path in files(dest):
        print(f"{path.stat().st_size:8} {path.name}")


if __name__ == "__main__":
    main()
