# SPDX-License-Identifier: MIT
"""What tests/gpu/run runs, in which order, and for how long at most."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tarfile
from pathlib import Path

from steps import Step

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "build" / "gpu" / "bundle.tar.xz"
KERNELS = ROOT / "python" / "mori" / "_kernels"
GROUPS = ("cpp", "go", "python", "examples", "sanitizer", "bench")

# Nothing is emulated, and what needs a GPU may not skip. A test that needs more GPUs than there are fails too.
REAL = {"MORI_REQUIRE": "gpu"}
# The test programs of core/device do not look for the kernels by themselves.
GO = {**REAL, "MORI_KERNEL_DIR": str(KERNELS)}
# Python of this machine, on this tree.
PYTHON = {**REAL, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests' / 'gpu'}", "PYTHONUNBUFFERED": "1"}
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "only_gpu", "-p", "no:cacheprovider"]
# They look at how much memory is free.
ALONE = ["tests/python/device/test_device_memory.py"]
CXX = ["-std=c++17", "-O2", "-Inative/include", "-Itests/gpu"]
HOST = ["-pthread"]  # which nvcc does not know

PROGRAMS = ("copy_blocks", "signal", "shmem", "litmus", "nic", "ep")
USER_KERNELS = ("signal", "shmem", "litmus")


def step(name: str, limit: float, *command: str | Path, **more: object) -> Step:
    """A step in the root of the tree."""
    more.setdefault("cwd", ROOT)
    return Step(name, limit, [str(word) for word in command], **more)  # type: ignore[arg-type]


def stages(chosen: list[str], scratch: Path) -> list[list[list[Step]]]:
    """Each stage is lanes of steps; a stage begins when the one before has ended."""
    lanes = {"cpp": checks(scratch), "go": go_tests(scratch), "python": python_tests(), "examples": examples(scratch),
             "sanitizer": sanitizers(scratch)}
    beside = [lanes[group] for group in GROUPS if group in chosen and group in lanes]
    alone = python_tests_alone() if "python" in chosen else []
    return [builds(chosen, scratch), beside, [alone + (benchmarks(scratch) if "bench" in chosen else [])]]


def unpack(scratch: Path) -> None:
    """Unpack the archive of make gpu-bundle, if there is one."""
    if BUNDLE.exists():
        with tarfile.open(BUNDLE) as archive:
            archive.extractall(scratch, filter="data")


def programs(scratch: Path) -> list[tuple[str, Path, str]]:
    """The test programs: a name for steps, the folder of the package, which has its test data, and the path."""
    found = sorted((scratch / "bin").glob("*.test"))
    return [(path.stem.replace(".", "-"), ROOT / path.stem.replace(".", "/"), str(path)) for path in found]


# ---- builds ----


def cuda() -> Path:
    """The toolkit's folder."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return Path(nvcc).resolve().parent.parent


def first(pattern: str, otherwise: str) -> str:
    """The folder of a file of the toolkit."""
    return str(next((path.parent for path in sorted(cuda().glob(pattern))), otherwise))


def builds(chosen: list[str], scratch: Path) -> list[list[Step]]:
    """What the chosen groups run."""
    lanes = [[step("machine", 60, "sh", "-c", "nvidia-smi; nvidia-smi topo -m; ldd --version | head -n 1")]]
    if {"python", "examples", "bench"} & set(chosen):
        load = "import mori.io as io, mori.shmem; io.IOEngine('probe', io.IOEngineConfig('127.0.0.1', 0)).close()"
        lanes.append([
            step("extension", 60, "sh", "-c", f'cp {scratch}/ext/*.so python/mori/_native/ && exec "$@"', "sh",
                 sys.executable, "-c", load, env=PYTHON),
            step("doctor", 60, sys.executable, "-m", "mori", "doctor", env=PYTHON, needs=("extension",)),
        ])
    if {"cpp", "sanitizer", "bench"} & set(chosen):
        lanes += [[compile_host(f"build-{name}", f"tests/gpu/{name}.cpp", scratch / name)] for name in PROGRAMS]
        for name in USER_KERNELS:
            lanes.append([compile_ptx(f"build-{name}-kernels", f"tests/gpu/{name}.cu", scratch / f"{name}.ptx")])
    if "cpp" in chosen:
        lanes.append([step("build-copy-nvcc", 120, cuda() / "bin" / "nvcc", *CXX, "-x", "cu", "-arch=sm_90", "-cubin",
                           "-Xptxas", "-v", "-o", scratch / "copy.cubin", "native/kernels/io/copy_blocks.cpp")])
        lanes.append([step("build-nic-nvcc", 120, cuda() / "bin" / "nvcc", *CXX, "-x", "cu", "-arch=sm_90", "-cubin",
                           "-Xptxas", "-v", "-o", scratch / "nic.cubin", "native/kernels/nic/mlx5.cpp")])
    return lanes


def compile_host(name: str, source: str, program: Path) -> Step:
    """A program over the driver's API."""
    headers = first("**/include/cuda.h", "/usr/include")
    stubs = first("**/stubs/libcuda.so", "/usr/lib")
    return step(name, 120, "g++", *CXX, *HOST, "-isystem", headers, "-o", program, source, f"-L{stubs}", "-lcuda")


def compile_ptx(name: str, source: str, ptx: Path) -> Step:
    """A user's kernels, by NVIDIA's compiler."""
    return step(name, 120, cuda() / "bin" / "nvcc", *CXX, "-arch=compute_90", "-ptx", "-o", ptx, source)


# ---- checks ----


def checks(scratch: Path) -> list[Step]:
    """The kernels by themselves."""
    copier = scratch / "copy_blocks"
    return [
        step("copy-sm_90", 150, copier, KERNELS / "io_copy_blocks.sm_90.ptx", "check", needs=("build-copy_blocks",)),
        step("copy-sm_80", 150, copier, KERNELS / "io_copy_blocks.sm_80.ptx", "check", needs=("build-copy_blocks",)),
        step("names-nvcc", 150, "sh", "-c", 'python3 tests/python/kernels/device_names.py words >"$0" && exec "$@"',
             scratch / "names.cu", cuda() / "bin" / "nvcc", *CXX, "-arch=sm_90", "-cubin",
             "-o", scratch / "names.cubin", scratch / "names.cu"),
        signalling("signal-check", scratch),
        step("litmus", 150, scratch / "litmus", scratch / "litmus.ptx", needs=("build-litmus", "build-litmus-kernels")),
        step("nic", 150, scratch / "nic", KERNELS / "nic_mlx5.sm_80.ptx", needs=("build-nic",)),
        symmetric("shmem-check", scratch, "check"),
        experts("ep-sm_90", scratch, "sm_90", "check"),
        experts("ep-sm_80", scratch, "sm_80", "check"),
    ]


def experts(name: str, scratch: Path, arch: str, what: str, *before: str) -> Step:
    """Dispatch and combine without mori's host side."""
    kernels = [KERNELS / f"ep_{call}.{arch}.ptx" for call in ("dispatch", "combine")]
    return step(name, 200, *before, scratch / "ep", *kernels, what, needs=("build-ep",))


def signalling(name: str, scratch: Path) -> Step:
    return step(name, 60, scratch / "signal", scratch / "signal.ptx", needs=("build-signal", "build-signal-kernels"))


def symmetric(name: str, scratch: Path, what: str, *before: str) -> Step:
    return step(name, 150, *before, scratch / "shmem", scratch / "shmem.ptx", KERNELS / "shmem_barrier.sm_80.ptx", what,
                needs=("build-shmem", "build-shmem-kernels"))


def go_tests(scratch: Path) -> list[Step]:
    """The test programs of make gpu-bundle."""
    if not programs(scratch):
        return [step("go", 5, "sh", "-c", "echo no build/gpu/bundle.tar.xz: run make gpu-bundle where Go is; false")]
    flags = ["-test.v", "-test.timeout=190s"]
    return [Step(f"go-{name}", 200, [path, *flags], folder, GO) for name, folder, path in programs(scratch)]


def python_tests() -> list[Step]:
    """The Python tests that use a GPU."""
    beside = []
    if importlib.util.find_spec("xdist"):
        beside = ["-n", str(max(2, min(10, (os.cpu_count() or 1) // 3))), "--dist", "loadfile"]
    return [step("pytest", 300, *PYTEST, *beside, *(f"--ignore={path}" for path in ALONE), "tests/python", env=PYTHON,
                 needs=("extension",))]


def python_tests_alone() -> list[Step]:
    """The Python tests that other tests on the same GPU would disturb."""
    return [step("pytest-alone", 120, *PYTEST, *ALONE, env=PYTHON, needs=("extension",))]


def examples(scratch: Path) -> list[Step]:
    """The examples, as their heads say: two PEs, on two GPUs if they are there."""
    if importlib.util.find_spec("torch") is None:
        return [step("examples", 5, "sh", "-c", "echo no torch: torchrun starts the examples; false")]
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    moe = [step(f"example-moe-{name}", 120, *start, f"examples/moe/{name}.py", needs=("extension",),
                env={**PYTHON, "MORI_SHMEM_DEVICE": "gpu"}) for name in ("train", "infer")]
    folder, ptx = Path("examples/gpu"), scratch / "put_signal.ptx"
    nvcc = step("build-put_signal", 120, cuda() / "bin" / "nvcc", "-std=c++17", "-O3", "-arch=compute_90", "-ptx",
                "-Inative/include", "-o", ptx, folder / "put_signal.cu")
    # Two hosts by name: what the kernels put goes by proxies, over tcp; and over shm where nothing is mapped.
    apart = [*start, "--no-python", "sh", "-c", 'MORI_NODE_ID="host $LOCAL_RANK" exec "$@"', "sh", sys.executable]
    unmapped = {**PYTHON, "MORI_DISABLE_P2P": "1"}
    return [
        *moe,
        nvcc,
        step("example-put_signal-hosts", 120, *apart, folder / "put_signal.py", ptx, env=PYTHON,
             needs=("extension", "build-put_signal")),
        step("example-put_signal-shm", 120, *start, folder / "put_signal.py", ptx, env=unmapped,
             needs=("extension", "build-put_signal")),
        step("example-triton_put-hosts", 150, *apart, folder / "triton_put.py", needs=("extension",),
             env={**PYTHON, "TRITON_CACHE_DIR": str(scratch / "triton-hosts")}),
        step("example-put_signal", 120, *start, folder / "put_signal.py", ptx, env=PYTHON,
             needs=("extension", "build-put_signal")),
        step("example-triton_put", 150, *start, folder / "triton_put.py", needs=("extension",),
             env={**PYTHON, "TRITON_CACHE_DIR": str(scratch / "triton")}),
    ]


def sanitizers(scratch: Path) -> list[Step]:
    """NVIDIA's own, on small cases."""
    copier, ptx = scratch / "copy_blocks", KERNELS / "io_copy_blocks.sm_90.ptx"
    found = []
    for tool in ("memcheck", "racecheck"):
        watch = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
        found.append(step(f"{tool}-copy", 200, *watch, copier, ptx, "small", needs=("build-copy_blocks",)))
        found.append(symmetric(f"{tool}-shmem", scratch, "small", *watch))
        found.append(experts(f"{tool}-ep", scratch, "sm_90", "small", *watch))
    watch = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"]
    program, ptx = scratch / "nic", KERNELS / "nic_mlx5.sm_80.ptx"
    found.append(step("memcheck-nic", 90, *watch, program, ptx, "1", needs=("build-nic",)))
    return found


# ---- benchmarks ----


def benchmarks(scratch: Path) -> list[Step]:
    """Alone on the machine, the end's figures first."""
    found = []
    for what in ("io", "shmem"):
        command = [sys.executable, "-m", "mori", "bench", what, "--device", "gpu", "--json"]
        found.append(step(f"bench-{what}", 150, *command, env=PYTHON, needs=("extension",), rows=True))
    command = [sys.executable, "-m", "mori", "bench", "ep", "--device", "gpu", "--json"]
    found.insert(0, step("bench-ep", 240, *command, env=PYTHON, needs=("extension",), rows=True))
    tune = [sys.executable, "-m", "mori", "tune", "ep", "--json", "--tokens", "1,128,4096"]
    table = scratch / "tuning.json"
    found.insert(1, step("tune-ep", 150, *tune, "--output", table, env=PYTHON, needs=("extension",)))
    found += [symmetric("bench-device-shmem", scratch, "bench"), signalling("bench-signal", scratch)]
    flags = ["-test.run=^$", "-test.bench=GPU|Device|Stag", "-test.benchtime=300ms", "-test.timeout=85s"]
    for name, package, path in programs(scratch):
        if name.startswith(("core-", "shmem")):
            found.append(Step(f"bench-go-{name}", 90, [path, *flags], package, GO))
    found.append(step("bench-copy", 200, scratch / "copy_blocks", KERNELS / "io_copy_blocks.sm_90.ptx", "bench",
                      needs=("build-copy_blocks",)))
    return found
