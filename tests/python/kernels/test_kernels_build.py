# SPDX-License-Identifier: MIT
"""The committed GPU kernels are what the compiler makes of the sources, and have the instructions they need."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from mori import _kernels
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
    assert sorted(there) == sorted(name for source in tool.kernels() for name in tool.products(source))


@pytest.mark.timeout(300)
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
    return (_kernels.DIRECTORY / f"{kernel}.{architecture}.ptx").read_text()


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
    order = ["fence.acq_rel.sys", "atom.add.relaxed.gpu", "fence.acq_rel.sys", "st.release.sys.u64"]
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
    order = ["st.release.sys.u64", "ld.acquire.sys.u64"]
    body = code[code.index(".entry mori_shmem_barrier") :]
    places: list[int] = []
    for word in order:
        places.append(body.index(word, places[-1] + 1 if places else 0))
    assert places == sorted(places)


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
    ("kernel", "symbol"), [("io_copy_blocks", "mori_io_copy_blocks"), ("shmem_barrier", "mori_shmem_barrier")]
)
def test_code_objects_are_for_amds_driver(kernel: str, symbol: str, architecture: str) -> None:
    code = (_kernels.DIRECTORY / f"{kernel}.{architecture}.hsaco").read_bytes()
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == 224  # EM_AMDGPU
    assert f"{symbol}.kd".encode() in code
    assert f"amdgcn-amd-amdhsa--{architecture}".encode() in code


def library_functions() -> set[str]:
    moves = [f"{kind}_{scope}" for scope in ("thread", "warp", "block") for kind in ("put{}_nbi", "get{}_nbi", "get{}")]
    names = {move.format(of) for move in moves for of in ("mem", "_uint32", "_uint64", "_float", "_double")}
    names |= {f"putmem_nbi_signal_{scope}" for scope in ("thread", "warp", "block")}
    names |= {f"{order}_thread{of}" for order in ("quiet", "fence") for of in ("", "_pe", "_pe_qp")}
    names |= {f"{of}_p" for of in ("int32", "int64", "uint32", "uint64", "int", "float", "double")}
    for of in ("uint32", "uint64", "int64"):
        names |= {f"atomic_{of}_nonfetch_thread", f"atomic_{of}_fetch_thread"}
        names |= {f"{of}_atomic_add_thread", f"{of}_atomic_fetch_add_thread"}
    for of in ("uint32", "uint64", "int32", "int64"):
        names |= {f"{of}_wait_until_equals", f"{of}_wait_until_greater_than"}
    names |= {"my_pe", "n_pes", "ptr_p2p", "ptr", "barrier_all_thread", "barrier_all_block"}
    names |= {"put_size_imm_nbi_thread", "atomic_size_nonfetch_thread"}
    return {f"mori_shmem_{name}" for name in names}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("architecture", ["sm_80", "gfx942"])
def test_the_library_has_each_function_by_its_c_name(tool: ModuleType, need_clang: None, architecture: str) -> None:
    code = tool.assembly(ROOT / "native" / "kernels" / "shmem" / "library.cpp", architecture)
    functions = re.findall(r"^define (?!internal)(?!weak).*@(\w+)\(", code, re.MULTILINE)
    assert set(functions) == library_functions()
    # A module that links a transport has its own.
    assert re.search(r"^define weak .*@mori_shmem_remote\(", code, re.MULTILINE)
    assert re.search(r"^@mori_shmem_state = linkonce_odr ", code, re.MULTILINE)


@pytest.mark.parametrize("architecture", ["sm_80", "gfx90a", "gfx942"])
def test_the_library_is_bitcode(architecture: str) -> None:
    assert (_kernels.DIRECTORY / f"shmem_library.{architecture}.bc").read_bytes()[:4] == b"BC\xc0\xde"
