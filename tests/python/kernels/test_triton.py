# SPDX-License-Identifier: MIT
"""Triton compiles kernels that use symmetric memory, for both vendors; it needs no GPU for that."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mori.ir import MORI_DEVICE_FUNCTIONS
from support import cannot, run_script

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "gpu" / "triton_put.py"

PRELUDE = f"""
import importlib.util
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import mori.ir.triton as mori_device
from mori import ir

spec = importlib.util.spec_from_file_location("triton_put", {str(EXAMPLE)!r})
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)

def compiled(kernel, signature, constants, backend, arch, warp):
    target = GPUTarget(backend, arch, warp)
    libraries = {{"mori_shmem": ir.bitcode(arch)}}
    return triton.compile(ASTSource(kernel, signature, constants), target=target, options={{"extern_libs": libraries}})
"""


@pytest.fixture(autouse=True)
def need_triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
        cannot("torch", "triton comes with torch, which is not installed")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("target", "assembly"), [(("cuda", 90, 32), "ptx"), (("cuda", 80, 32), "ptx"), (("hip", "gfx942", 64), "amdgcn")]
)
def test_the_example_compiles(target: tuple[str, object, int], assembly: str) -> None:
    code = run_script(
        PRELUDE
        + f"""
pointers = {{name: "*fp32" for name in ("target", "source", "doubled")}}
numbers = {{"signal": "*i64", "count": "i32", "turn": "constexpr", "BLOCK": "constexpr"}}
made = compiled(example.pass_on, {{**pointers, **numbers}}, {{"turn": 1, "BLOCK": 1024}}, *{target!r})
print(made.asm[{assembly!r}])
""",
        timeout=180,
    )
    assert "mori_shmem_state" in code
    if assembly == "ptx":
        assert re.search(r"\.weak \.global .* mori_shmem_state\[64\];", code), "the host finds it by name"
        assert ".extern .func" not in code, "nothing is missing"
        assert "st.release.sys.u64" in code
        assert "ld.acquire.sys.u64" in code
    else:
        assert "buffer_wbl2 sc0 sc1" in code


@pytest.mark.timeout(200)
def test_every_function_can_be_called_with_plain_numbers() -> None:
    calls = []
    for name, entry in MORI_DEVICE_FUNCTIONS.items():
        arguments = ["heap" if of == "uint64" and not i else "1" for i, of in enumerate(entry["args"])]
        calls.append(f"    mori_device.{name}({', '.join(arguments)})")
    kernel = "import triton\nimport mori.ir.triton as mori_device\n\n\n@triton.jit\ndef everything(heap):\n"
    # Triton reads a kernel's source from its file.
    code = run_script(
        PRELUDE
        + f"""
import os, sys
folder = os.environ["TRITON_CACHE_DIR"]
with open(os.path.join(folder, "everything_kernel.py"), "w") as file:
    file.write({kernel + chr(10).join(calls) + chr(10)!r})
sys.path.insert(0, folder)
from everything_kernel import everything
made = compiled(everything, {{"heap": "*i64"}}, {{}}, "cuda", 90, 32)
print(made.asm["llir"])
""",
        timeout=180,
    )
    assert "define void @everything" in code or "define ptx_kernel void @everything" in code
    assert not re.findall(r"^declare .* @mori_shmem.*", code, re.MULTILINE), "each was found in the library"


def test_a_call_with_too_few_arguments_is_refused() -> None:
    out = run_script(
        """
import mori.ir.triton as mori_device
try:
    mori_device.putmem_nbi_block(1, 2, _semantic=object())
except TypeError as err:
    print(err)
"""
    )
    assert out == "putmem_nbi_block takes 5 arguments (uint64, uint64, uint64, int32, int32), not 2\n"


def test_the_example_says_that_there_is_no_gpu() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    ended = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=180)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "torch sees no GPU"
