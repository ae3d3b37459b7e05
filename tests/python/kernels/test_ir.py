# SPDX-License-Identifier: MIT
"""mori.ir: the table of the device library, and where its bitcode is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mori import ir
from support import run_script

TYPES = {"int32", "uint32", "int64", "uint64", "float32", "float64"}


def test_the_table_says_what_callers_need() -> None:
    for name, entry in ir.MORI_DEVICE_FUNCTIONS.items():
        assert entry["symbol"] == f"mori_shmem_{name}"
        assert {*entry["args"], entry["ret"]} <= TYPES
    table = ir.MORI_DEVICE_FUNCTIONS
    assert table["my_pe"] == {"symbol": "mori_shmem_my_pe", "args": [], "ret": "int32", "pure": True}
    assert table["putmem_nbi_signal_block"]["args"] == ["uint64"] * 5 + ["int32"] * 3
    assert table["atomic_int64_fetch_thread"]["args"] == ["uint64", "int64", "int64", "int32", "int32", "int32"]
    assert table["atomic_int64_fetch_thread"]["ret"] == "int64"
    assert table["float_p"]["args"] == ["uint64", "float32", "int32", "int32"]
    assert {name for name, entry in table.items() if entry.get("pure")} == {"my_pe", "n_pes", "ptr", "ptr_p2p"}
    assert (ir.SIGNAL_SET, ir.SIGNAL_ADD) == (9, 10)


def names() -> set[str]:
    """The names of the contract, by their grammar."""
    scopes = ("thread", "warp", "block")
    moves = [f"{kind}_{scope}" for scope in scopes for kind in ("put{}_nbi", "get{}_nbi", "get{}")]
    found = {move.format(of) for move in moves for of in ("mem", "_uint32", "_uint64", "_float", "_double")}
    found |= {f"putmem_nbi_signal_{scope}" for scope in scopes}
    found |= {f"{order}_thread{of}" for order in ("quiet", "fence") for of in ("", "_pe", "_pe_qp")}
    found |= {f"{of}_p" for of in ("int32", "int64", "uint32", "uint64", "int", "float", "double")}
    for of in ("uint32", "uint64", "int64"):
        found |= {f"atomic_{of}_nonfetch_thread", f"atomic_{of}_fetch_thread"}
        found |= {f"{of}_atomic_add_thread", f"{of}_atomic_fetch_add_thread"}
    for of in ("uint32", "uint64", "int32", "int64"):
        found |= {f"{of}_wait_until_equals", f"{of}_wait_until_greater_than"}
    found |= {"my_pe", "n_pes", "ptr_p2p", "ptr", "barrier_all_thread", "barrier_all_block"}
    return found | {"put_size_imm_nbi_thread", "atomic_size_nonfetch_thread"}


def test_the_table_has_the_names_of_the_contract() -> None:
    assert set(ir.MORI_DEVICE_FUNCTIONS) == names()


@pytest.mark.parametrize(
    ("arch", "compiled_for"),
    [("sm_80", "sm_80"), ("sm_90a", "sm_80"), (90, "sm_80"), ("sm_120", "sm_80"), ("gfx942", "gfx942"),
     ("gfx90a:sramecc+:xnack-", "gfx90a")],
)
def test_bitcode_is_found_for_a_gpu(arch: str | int, compiled_for: str) -> None:
    path = Path(ir.bitcode(arch))
    assert path.name == f"shmem_library.{compiled_for}.bc"
    assert path.read_bytes()[:4] == b"BC\xc0\xde"


@pytest.mark.parametrize("arch", ["sm_75", "gfx1100", 70, "", "../gfx942"])
def test_a_gpu_without_bitcode_is_told(arch: str | int) -> None:
    with pytest.raises(ValueError, match=r"is not for .*, but for gfx90a, gfx942, sm_80"):
        ir.bitcode(arch)


def test_the_environment_may_name_other_bitcode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own.bc"
    own.write_bytes(b"BC\xc0\xde")
    monkeypatch.setenv("MORI_SHMEM_BC", str(own))
    assert ir.bitcode("sm_75") == str(own)
    monkeypatch.setenv("MORI_SHMEM_BC", str(tmp_path / "none.bc"))
    with pytest.raises(ValueError, match=r"MORI_SHMEM_BC=.*none\.bc: no such file"):
        ir.bitcode("sm_90")


def test_it_needs_neither_triton_nor_a_gpu() -> None:
    out = run_script("import sys, mori.ir; print('triton' in sys.modules, 'torch' in sys.modules)")
    assert out == "False False\n"
