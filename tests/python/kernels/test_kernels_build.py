# SPDX-License-Identifier: MIT
"""The committed GPU kernels are what the compiler makes of the sources, and have the instructions they need."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import products
import pytest

from mori import _kernels
from mori.ir import MORI_DEVICE_FUNCTIONS, bitcode
from support import cannot

ROOT = Path(__file__).resolve().parents[3]
KERNEL = ROOT / "native" / "kernels" / "io" / "copy_blocks.cpp"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernels_tool", ROOT / "tools" / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def need_clang(tool: ModuleType) -> None:
    if shutil.which(tool.COMPILER) is None:
        cannot("clang", "clang-19 is not installed")


def manifest() -> dict:
    return json.loads((_kernels.DIRECTORY / "manifest.json").read_text())


def test_sources_have_not_changed_since(tool: ModuleType) -> None:
    assert manifest()["sources"] == tool.sources(), "native has changed: run make kernels"


def test_products_are_those_of_the_manifest(tool: ModuleType) -> None:
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tool.files(_kernels.DIRECTORY)}
    assert there == manifest()["products"]
    assert not tool.redundant(_kernels.DIRECTORY, there)
    wanted = {name for source in tool.kernels() for name in tool.products(source)}
    left_out = wanted - set(there)
    assert not set(there) - wanted
    assert all(name.endswith(".sm_90.ptx") and name.replace("sm_90", "sm_80") in there for name in left_out)


@pytest.mark.timeout(900)
def test_building_again_changes_nothing(tool: ModuleType, need_clang: None, tmp_path: Path) -> None:
    tool.build(tmp_path)
    for name in sorted(manifest()["products"]):
        made, committed = (tmp_path / name).read_bytes(), (_kernels.DIRECTORY / name).read_bytes()
        assert made == committed, (
            f"{name} differs: run make kernels (committed by {manifest()['compiler']}, here is {tool.compiler()[1]})"
        )


def test_a_kernel_that_does_not_compile_is_named(tool: ModuleType, need_clang: None, tmp_path: Path) -> None:
    broken = ROOT / "native" / "kernels" / "testdata" / "copy_blocks.cpp"  # for the CPU alone
    with pytest.raises(tool.CannotCompile, match=r"copy_blocks\.cpp: exit status 1"):
        tool.assembly(broken, "sm_90")


def has_run(words: list[str], run: list[str]) -> bool:
    return any(words[i : i + len(run)] == run for i in range(len(words)))


def ptx(architecture: str, kernel: str = "io_copy_blocks") -> str:
    return products.ptx(kernel, architecture).read_text()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_ptx_has_what_speed_and_order_need(architecture: str) -> None:
    code = ptx(architecture)
    assert ".visible .entry mori_io_copy_blocks(" in code
    assert f".target {architecture}" in code
    # A lane has eight loads of 16 bytes under way before its first store.
    accesses = re.findall(r"(?:ld|st)\.global[.:\w]*", code)
    assert has_run(accesses, ["ld.global.L1::no_allocate.v4.u32"] * 8 + ["st.global.v4.u32"] * 8)
    # The copies, the arrival, and only then the word: each for the whole system.
    told = code[code.index("fence.acq_rel.sys") :]
    order = ["fence.acq_rel.sys", "atom.add.acq_rel.gpu", "st.release.sys.u64"]
    places: list[int] = []
    for word in order:
        places.append(told.index(word, places[-1] + 1 if places else 0))
    assert places == sorted(places)
    assert ".local" not in code, "registers are spilled to memory"


def test_only_ptx_of_sm_90_copies_in_bulk() -> None:
    assert "cp.async.bulk" not in ptx("sm_80")
    code = ptx("sm_90")
    assert "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" in code
    assert "cp.async.bulk.global.shared::cta.bulk_group" in code
    # What the copy engine wrote is done, and seen by ordinary accesses, before the first fence.
    ends = [code.index(word) for word in ("cp.async.bulk.wait_group 0", "fence.proxy.async;", "fence.acq_rel.sys")]
    assert ends == sorted(ends)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_ptx_of_the_barrier_releases_and_acquires(architecture: str) -> None:
    code = ptx(architecture, "shmem_barrier")
    assert ".weak .global .align 8 .b8 mori_shmem_state[64];" in code
    assert ".weak .func" in code
    assert "mori_shmem_remote(" in code, "the seam for a transport is a function of its own"
    body = code[code.index(".entry mori_shmem_barrier") :]
    signals = [found.start() for found in re.finditer(r"st\.relaxed\.sys\.u64", body)]
    assert signals
    for at in signals:  # of all at once, and of rounds
        wait = body.rfind("ld.acquire.sys.u64", 0, at)
        assert body.rfind("fence.acq_rel.sys", 0, at) > wait, "what is stored for a peer is behind a fence"
        assert body.find("ld.acquire.sys.u64", at) > 0, "and the wait behind that"


def in_order(code: str, words: list[str]) -> bool:
    at = 0
    for word in words:
        at = code.find(word, at) + 1
        if at == 0:
            return False
    return True


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kernel", ["ep_dispatch", "ep_combine"])
def test_ptx_of_dispatch_and_combine(kernel: str, architecture: str) -> None:
    code = ptx(architecture, kernel)
    assert f".visible .entry mori_{kernel}(" in code
    # Of dispatch the counts, by whose address one thread admits ranks where they may be refused; of combine sums of
    # which one is NaN, which a function makes one and the same.
    arrays = re.findall(r"\.local .*__local_depot\d+\[(\d+)\]", code)
    assert arrays == (["32"] if kernel == "ep_dispatch" else ["64"]), "registers are spilled to memory"
    assert "fma" not in code, "a product and a sum are rounded one after the other"
    assert "ld.acquire.sys" in code
    body = code[code.index(f".visible .entry mori_{kernel}(") :]
    # The rows of all blocks, which combine writes to memory of this GPU, and only then the flags, behind one fence.
    rows = "fence.acq_rel.sys" if kernel == "ep_dispatch" else "fence.acq_rel.gpu"
    assert in_order(body, [rows, "atom.add.relaxed.gpu", "fence.acq_rel.sys", "st.relaxed.sys.u64"])
    accesses = re.findall(r"(?:ld|st)\.global[.:\w]*", body)
    if kernel == "ep_combine":
        # Eight rows of a token are on their way to a lane; branches lie between, as there may be fewer.
        assert accesses.count("ld.global.L1::no_allocate.v4.u32") >= 8 * 2
        assert "st.global.v4.u32" in accesses
    else:
        assert has_run(accesses, ["st.global.v4.u32"])
    assert ("cp.async.bulk.global.shared::cta.bulk_group" in code) == (architecture == "sm_90")
    if architecture == "sm_90":
        assert in_order(body, ["cp.async.bulk.wait_group 0", "fence.proxy.async;", rows])
    if kernel == "ep_combine":  # a chunk of rows that were sent, its arrival, all arrivals, the word that reports it
        sent = ["fence.acq_rel.sys", "atom.add.relaxed.gpu", "fence.acq_rel.sys", "st.relaxed.sys.u64"]
        older = ["cp.async.bulk.wait_group 4;", "fence.proxy.async;"] if architecture == "sm_90" else []
        assert in_order(body, [*older, *sent])


@pytest.mark.timeout(200)
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("kernel", ["dispatch", "combine"])
def test_code_of_dispatch_and_combine_for_amd(
    tool: ModuleType, need_clang: None, kernel: str, architecture: str
) -> None:
    code = tool.assembly(ROOT / "native" / "kernels" / "ep" / f"{kernel}.cpp", architecture)
    assert "global_load_dwordx4" in code
    assert "global_store_dwordx4" in code
    writeback = "buffer_wbl2 sc0 sc1" if architecture == "gfx942" else "buffer_wbl2"
    assert writeback in code, "what was written is seen by other GPUs"
    assert "buffer_invl2" in code or "buffer_inv sc0 sc1" in code, "and read anew"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942"])
def test_code_for_amd_has_what_speed_and_order_need(tool: ModuleType, need_clang: None, architecture: str) -> None:
    code = tool.assembly(KERNEL, architecture)
    accesses = re.findall(r"(?:global|flat)_(?:load|store)_\w+", code)
    assert has_run(accesses, ["global_load_dwordx4"] * 8 + ["global_store_dwordx4"] * 8)
    assert "flat_load_dwordx4" not in code
    # gfx90a's one L2 is coherent within the GPU; its write-back for the system has no scope bits.
    writeback = "buffer_wbl2 sc0 sc1" if architecture == "gfx942" else "buffer_wbl2"
    told = code[code.rindex("s_barrier") :]
    places = []
    for word in (writeback, "global_atomic_add|flat_atomic_add", writeback, "global_store_dwordx2|flat_store_dwordx2"):
        places.append(re.compile(word).search(told, places[-1] + 1 if places else 0).start())
    assert places == sorted(places)
    assert re.search(r"\.private_segment_fixed_size: 0\b", code), "registers are spilled to memory"


@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942"])
@pytest.mark.parametrize(
    ("kernel", "symbol"), [
        ("io_copy_blocks", "mori_io_copy_blocks"), ("shmem_barrier", "mori_shmem_barrier"),
        ("ep_dispatch", "mori_ep_dispatch"), ("ep_combine", "mori_ep_combine"),
        ("ep_combine_forward", "mori_ep_combine_forward"),
        ("ep_count_local", "mori_ep_count_local"), ("ep_standard", "mori_ep_unpack"),
    ]
)
def test_code_objects_are_for_amds_driver(kernel: str, symbol: str, architecture: str) -> None:
    code = (_kernels.DIRECTORY / f"{kernel}.{architecture}.hsaco").read_bytes()
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == 224  # EM_AMDGPU
    assert f"{symbol}.kd".encode() in code
    assert f"amdgcn-amd-amdhsa--{architecture}".encode() in code


LLVM_TYPES = {
    "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64", "float32": "float", "float64": "double",
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("architecture", ["sm_80", "gfx90a", "gfx942"])
def test_the_library_has_each_function_of_the_table(tool: ModuleType, need_clang: None, architecture: str) -> None:
    code = tool.assembly(ROOT / "native" / "kernels" / "shmem" / "library.cpp", architecture)
    found = {}
    heads = re.findall(r"^define (?!internal|weak|linkonce)(.*) @(\w+)\((.*?)\) .*\{$", code, re.MULTILINE)
    for before, name, arguments in heads:
        found[name] = [before.split()[-1], *(argument.split()[0] for argument in arguments.split(", ") if argument)]
    wanted = {}
    for entry in MORI_DEVICE_FUNCTIONS.values():
        wanted[entry["symbol"]] = [LLVM_TYPES[of] for of in (entry["ret"], *entry["args"])]
    assert found == wanted
    # A module that links a transport has its own.
    assert re.search(r"^define weak .*@mori_shmem_remote\(", code, re.MULTILINE)
    assert re.search(r"^@mori_shmem_state = linkonce_odr ", code, re.MULTILINE)
    # What it is linked with says these.
    assert not re.search(r"llvm\.module\.flags|target-cpu|target-features|llvm\.compiler\.used|__hip_cuid", code)


CALLER = """
using Word = unsigned long;
extern "C" __attribute__((device)) int mori_shmem_putmem_nbi_signal_block(Word, Word, Word, Word, Word, int, int, int);
extern "C" __attribute__((device)) Word mori_shmem_uint64_wait_until_greater_than(Word, Word);

extern "C" __attribute__((global)) void pass_on(Word heap) {
    mori_shmem_putmem_nbi_signal_block(heap, heap + 64, 64, heap + 128, 1, 9, 1, 0);
    mori_shmem_uint64_wait_until_greater_than(heap + 128, 0);
}
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("architecture", ["sm_90", "gfx90a", "gfx942"])
def test_a_kernel_that_knows_only_names_links(
    tool: ModuleType, need_clang: None, architecture: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "caller.cpp", tmp_path / "out"
    source.write_text(CALLER)
    link = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", bitcode(architecture)]
    flags = [*tool.ARCHITECTURES[architecture], "-O2", *link, "-o", str(out), str(source)]
    if architecture.startswith("sm_"):
        flags.append("-S")
    made = subprocess.run([tool.COMPILER, *flags], capture_output=True, text=True, timeout=100)
    assert made.returncode == 0, made.stderr
    code = out.read_bytes()
    assert b"mori_shmem_state" in code, "the host finds it by name"
    if architecture.startswith("sm_"):
        text = code.decode()
        assert "mori_shmem_state[64];" in text
        assert ".extern" not in text, "nothing is missing"
        assert "st.global.v4.u32" in text, "16 bytes an access"
        order = [text.index(word) for word in ("st.global.v4.u32", "st.release.sys.u64")]
        assert order == sorted(order), "the signal follows the payload"


@pytest.mark.parametrize("architecture", ["sm_80", "gfx90a", "gfx942"])
def test_the_library_is_bitcode(architecture: str) -> None:
    assert (_kernels.DIRECTORY / f"shmem_library.{architecture}.bc").read_bytes()[:4] == b"BC\xc0\xde"
