# SPDX-License-Identifier: MIT
"""The device's side of a NIC's queue: compiled kernels keep its order, and a device that is wrong is found out.

x86 shows stores in the order in which they were made. So the reference NIC sees what is done in a wrong order, and the
thread sanitizer what is not ordered; for fences that order for a NIC alone the compiled code is looked at. Each
mutation stands under who notices it.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import products
import pytest

from mori import _kernels
from support import cannot

ROOT = Path(__file__).resolve().parents[3]
HEADERS = ROOT / "native" / "include"
KERNELS = ROOT / "native" / "kernels" / "nic"
FAMILIES = ("mlx5", "bnxt", "ionic")
PROGRAM = ROOT / "native" / "kernels" / "testdata" / "nic.cpp"

STEP = "        MORI_NIC_STEP();\n"
FENCE = "        fence<Scope::system>();\n"
RECORD = """\
        atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint32_t*>(told(queue.dbr)) + 1, mlx5::big(index));
"""
DOORBELL = """\
        atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint64_t*>(told(queue.uar)),
                                                   uint64_t(mlx5::big(told(queue.qpn) << 8)) << 32 | mlx5::big(index << 8));
"""  # noqa: E501
RING = FENCE + STEP + RECORD + STEP + FENCE + STEP + DOORBELL
SWAPPED = FENCE + STEP + DOORBELL + STEP + FENCE + STEP + RECORD

TELL = """\
        fence<Scope::system>();
        MORI_NIC_STEP();
        atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint64_t*>(told(queue.uar)),
"""
LAP = "(word & 1) == (polled >> told(queue.cqLog) & 1)"
ROOM = "(uint64_t(1) << told(queue.sqLog)) - told(annexOf(queue).spare)"
UPTO = "found.upto = completed +"

# What is wrong: the header, what stands there, what stands there instead. A header of all families is tried with mlx5,
# or with the family behind a colon.
Mutation = tuple[str, str, str]
SEEN_BY_THE_NIC: dict[str, Mutation] = {
    "the doorbell is rung before the record is written": ("mlx5", RING, SWAPPED),
    "the record is in this machine's byte order": ("mlx5", "+ 1, mlx5::big(index));", "+ 1, index);"),
    "the receive half of the record moves": ("mlx5", "told(queue.dbr)) + 1,", "told(queue.dbr)),"),
    "an entry does not go on at the ring's start": (
        "mlx5", "(first + segment / 4) & mask", "(first & mask) + segment / 4",
    ),
    "a completion of the last lap counts": ("mlx5", "(polled >> told(queue.cqLog) & 1)", "(last >> 24 & 1)"),
    "completions are not given back": ("poll", "        NIC<provider>::consume(queue, polled);\n", ""),
    "an entry of two blocks counts as one": (
        "mlx5", "return first + atomicLoad<Scope::device, Order::relaxed>(internal::keptOf(queue, first));",
        "return first + 1;",
    ),
    "the ring has always room": ("post", "first + blocks - completed <= room", "room > 0"),
    "posters do not wait for their turn": ("post", "if (published == first) {", "if (published <= first) {"),
    "an entry is published before it is written": (
        "post",
        """\
        writeEntry<provider>(queue, first, work);
        if (publish<provider>(channel, first, blocks)) {
""",
        """\
        const bool came = publish<provider>(channel, first, blocks);
        writeEntry<provider>(queue, first, work);
        if (came) {
""",
    ),
    "who rings does not look whether others came": (
        "post",
        "atomicCompareSwap<Scope::device, Order::acqRel>(&queue.bells, came, uint64_t(0));",
        "came; atomicStore<Scope::device, Order::release>(&queue.bells, uint64_t(0));",
    ),
    "bnxt: the doorbell does not tell the lap": ("bnxt", "uint32_t(count >> log & 1) << kEpochShift", "0"),
    "bnxt: the doorbell is not valid": ("bnxt", "1u << kValidShift | ", ""),
    "bnxt: packets are numbered out of the ring's order": (
        "post:bnxt",
        """\
        if (published == first) {
            NIC<provider>::admit(queue, first, blocks);
""",
        """\
        NIC<provider>::admit(queue, first, blocks);
        if (published == first) {
""",
    ),
    "bnxt: a part of a packet is none": ("bnxt", "(bytes + mtu - 1) / mtu", "bytes / mtu"),
    "bnxt: the ring is filled": ("bnxt", ROOM, "uint64_t(1) << told(queue.sqLog)"),
    "bnxt: a completion of the last lap counts": ("bnxt", LAP, "word == 0"),
    "bnxt: the index of a completion is its entry's": ("bnxt", UPTO, UPTO + " 1 +"),
    "bnxt: completions are not given back": ("poll:bnxt", "        NIC<provider>::consume(queue, polled);\n", ""),
    "ionic: entries do not tell the lap": ("ionic", "uint32_t(~first >> log & 1)", "1"),
    "ionic: flags are in this machine's byte order": ("ionic", "flags << 24", "flags << 16"),
    "ionic: an atomic entry's key is where version 1 has it": ("ionic", "version >= 2 ? big(work.lkey) : 0", "0"),
    "ionic: the doorbell has a count": ("ionic", "(count & ((uint64_t(1) << log) - 1))", "(count & 0xffff)"),
    "ionic: the ring is filled": ("ionic", ROOM, "uint64_t(1) << told(queue.sqLog)"),
    "ionic: a completion of the last lap counts": ("ionic", LAP, "word == 0"),
    "ionic: messages are counted from 1": ("ionic", UPTO, UPTO + " 1 +"),
}
SEEN_BY_THE_SANITIZER: dict[str, Mutation] = {
    "no fence between entry and record": ("mlx5", RING, RING[len(FENCE) :]),
    "a completion is not acquired": (
        "mlx5", "atomicLoad<Scope::system, Order::acquire>(reinterpret_cast<const uint32_t*>(entry + 60))",
        "atomicLoad<Scope::system, Order::relaxed>(reinterpret_cast<const uint32_t*>(entry + 60))",
    ),
    "what is done is not released": (
        "poll", "atomicStore<Scope::device, Order::release>(&queue.completed, completed);",
        "atomicStore<Scope::device, Order::relaxed>(&queue.completed, completed);",
    ),
    "bnxt: no fence between entry and doorbell": ("bnxt", TELL, TELL[len(FENCE) :]),
    "bnxt: a completion is not acquired": (
        "bnxt", "atomicLoad<Scope::system, Order::acquire>(reinterpret_cast<const uint32_t*>(entry + 24))",
        "atomicLoad<Scope::system, Order::relaxed>(reinterpret_cast<const uint32_t*>(entry + 24))",
    ),
    "ionic: no fence between entry and doorbell": ("ionic", TELL, TELL[len(FENCE) :]),
    "ionic: a completion is not acquired": (
        "ionic", "atomicLoad<Scope::system, Order::acquire>(reinterpret_cast<const uint32_t*>(entry + 28))",
        "atomicLoad<Scope::system, Order::relaxed>(reinterpret_cast<const uint32_t*>(entry + 28))",
    ),
}
SEEN_IN_THE_CODE: dict[str, Mutation] = {
    "no fence between entry and record": SEEN_BY_THE_SANITIZER["no fence between entry and record"],
    "no fence between record and doorbell": ("mlx5", RECORD + STEP + FENCE, RECORD + STEP),
    "the doorbell is rung before the record is written": ("mlx5", RING, SWAPPED),
    "a completion is not acquired": SEEN_BY_THE_SANITIZER["a completion is not acquired"],
    "what is done is not released": SEEN_BY_THE_SANITIZER["what is done is not released"],
    "completions are not given back": SEEN_BY_THE_NIC["completions are not given back"],
    **{what: wrong for what, wrong in SEEN_BY_THE_SANITIZER.items() if ":" in what},
    "bnxt: completions are not given back": SEEN_BY_THE_NIC["bnxt: completions are not given back"],
}


def family_of(mutation: Mutation) -> str:
    """Return the family that a mutation is tried with."""
    family = mutation[0].split(":")[-1]
    return family if family in FAMILIES else "mlx5"


def mutated(mutation: Mutation, folder: Path) -> Path:
    """Return a folder of headers that are wrong in one place."""
    header, right, wrong = mutation
    header = header.split(":")[0]
    shutil.copytree(HEADERS / "mori", folder / "mori", dirs_exist_ok=True)
    path = folder / "mori" / "nic" / f"{header}.hpp"
    text = path.read_text()
    assert text.count(right) == 1, f"{header}.hpp has changed: the mutation is not of it"
    path.write_text(text.replace(right, wrong))
    return folder


# ---- the reference NIC ----


def built(family: str, headers: Path, folder: Path, *flags: str) -> Path:
    if shutil.which("g++") is None:
        cannot("clang", "g++ is not installed")
    program = folder / "program"
    command = ["g++", "-std=c++17", "-w", "-g1", "-pthread", f"-DMORI_NIC_FAMILY={family}"]
    command += [*flags, f"-I{headers}", "-o", str(program)]
    made = subprocess.run([*command, str(PROGRAM)], capture_output=True, text=True, timeout=200)
    assert made.returncode == 0, made.stderr
    return program


def sanitized(sanitizers: str) -> list[str]:
    # Threads synchronise at the speed of optimized code; all else is compiled in half the time without.
    return ["-O1" if sanitizers == "thread" else "-O0", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]


def first_red_seed(program: Path, seeds: int, seconds: int) -> tuple[int, str]:
    """Return the first seed that a program does not pass, else 0, and its output."""
    for seed in range(1, seeds + 1):
        ended = subprocess.run([program, str(seed), "1", str(seconds)], capture_output=True, text=True, timeout=200)
        if ended.returncode != 0:
            return seed, ended.stderr
    return 0, ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", SEEN_BY_THE_NIC)
def test_the_nic_sees(what: str, tmp_path: Path) -> None:
    mutation = SEEN_BY_THE_NIC[what]
    program = built(family_of(mutation), mutated(mutation, tmp_path), tmp_path)
    seed, said = first_red_seed(program, 20, 2)
    assert seed, "every seed is green"
    print(f"seed {seed}: {said.splitlines()[:1]}")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("what", SEEN_BY_THE_SANITIZER)
def test_the_sanitizer_sees(what: str, tmp_path: Path) -> None:
    mutation = SEEN_BY_THE_SANITIZER[what]
    headers = mutated(mutation, tmp_path)
    program = built(family_of(mutation), headers, tmp_path, *sanitized("thread"))
    seed, said = first_red_seed(program, 20, 10)
    assert seed, "every seed is green"
    assert "data race" in said, said[:2000]
    print(f"seed {seed}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_right_is_green(family: str, tmp_path: Path) -> None:
    # The same program from the same seeds: it is the mutations that make them red.
    assert first_red_seed(built(family, HEADERS, tmp_path), 20, 10) == (0, "")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", ["bnxt", "ionic"])  # mlx5 is one of the kernels of test_kernels_cpu.py
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_families_under_sanitizers(sanitizers: str, family: str, tmp_path: Path) -> None:
    program = built(family, HEADERS, tmp_path, *sanitized(sanitizers))
    ended = subprocess.run([program], capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout == "all ran\n"


# ---- the code ----


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernels_tool", ROOT / "tools" / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if shutil.which(module.COMPILER) is None:
        cannot("clang", "clang-19 is not installed")
    return module


def function(code: str, name: str) -> str:
    """The body of the function whose name has that word, in PTX or AMD's assembly."""
    begin = re.search(rf"^(?:\.weak \.func.*\b)?\w*{name}\w*(?:\(\n|:)", code, re.MULTILINE)
    assert begin, f"no function {name}"
    body = code[begin.end() :]
    return re.split(r"^(?:\}|\.Lfunc_end\d+:)", body, maxsplit=1, flags=re.MULTILINE)[0]


def is_run(words: list[str], run: list[str]) -> bool:
    """Tell whether each place of the run's last word has the whole run before it, and there is one."""
    ends = [i for i, word in enumerate(words) if word == run[-1]]
    return bool(ends) and all(words[i + 1 - len(run) : i + 1] == run for i in ends)


def follow(words: list[str], *order: str) -> bool:
    rest = iter(words)
    return all(word in rest for word in order)


def ordered_ptx(code: str, family: str) -> bool:
    """Tell whether entry, record and doorbell are fenced, and completions acquired and given back, in PTX."""
    access = r"\b((?:fence|atom)\.[\w.]+|(?:ld|st)\.(?:global|acquire|release|relaxed)[\w.:]*)"
    post = [word for word in re.findall(access, function(code, "postOne")) if ".nc." not in word]
    record = ["fence.acq_rel.sys", "st.relaxed.sys.u32"] if family == "mlx5" else []
    ring = [*record, "fence.acq_rel.sys", "st.relaxed.sys.u64"]
    read = re.findall(access, function(code, "readCompletions"))
    given = "st.release.sys.u32" if family == "mlx5" else "st.release.sys.u64"
    return (
        is_run(post, ring)
        and follow(post, "st.global.v4.u32", "st.release.gpu.u64", "atom.add.acq_rel.gpu.u64", "fence.acq_rel.sys")
        and follow(read, "ld.acquire.sys.u32", given, "st.release.gpu.u64")
    )


def ordered_gfx(code: str, architecture: str, family: str) -> bool:
    """The same in AMD's assembly: what was written goes to memory, and is waited for, before what comes after it."""
    access = r"^\s+((?:flat|global)_(?:load|store|atomic)_\w+|buffer_wbl2|buffer_inv\w*|s_waitcnt vmcnt\(0\))(.*)$"
    scope = " sc0 sc1" if architecture == "gfx942" else ""

    def words(name: str) -> list[str]:
        found = re.findall(access, function(code, name), re.MULTILINE)
        return [word + (scope if word[:4] == "buff" and "sc0 sc1" in rest else "") for word, rest in found]

    back, wait = f"buffer_wbl2{scope}", "s_waitcnt vmcnt(0)"
    post = [word for word in words("postOne") if "load" not in word and "inv" not in word]
    post = [word for i, word in enumerate(post) if word != wait or post[i - 1] != wait]
    record = [back, wait, "flat_store_dword"] if family == "mlx5" else []
    ring = [*record, back, wait, "flat_store_dwordx2"]
    given = "flat_store_dword" if family == "mlx5" else "flat_store_dwordx2"
    return any(post[i : i + len(ring)] == ring for i in range(len(post))) and follow(
        words("readCompletions"), "flat_load_dword", wait, back, wait, given
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_ptx_keeps_the_order(architecture: str, family: str) -> None:
    code = products.ptx(f"nic_{family}", architecture).read_text()
    for kernel in ("interchange", "verify", "ping_pong", "post"):
        assert f".visible .entry mori_nic_{kernel}(" in code
    assert ordered_ptx(code, family)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942"])
def test_code_for_amd_keeps_the_order(tool: ModuleType, architecture: str, family: str) -> None:
    assert ordered_gfx(tool.assembly(KERNELS / f"{family}.cpp", architecture), architecture, family)
    assert b"mori_nic_ping_pong.kd" in (_kernels.DIRECTORY / f"nic_{family}.{architecture}.hsaco").read_bytes()


@pytest.mark.timeout(200)
@pytest.mark.parametrize("what", SEEN_IN_THE_CODE)
def test_the_code_shows(what: str, tool: ModuleType, tmp_path: Path) -> None:
    mutation = SEEN_IN_THE_CODE[what]
    family, headers = family_of(mutation), mutated(mutation, tmp_path)
    common = [flag if flag != "-Inative/include" else f"-I{headers}" for flag in tool.COMMON]
    compiled = functools.partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, timeout=150, check=True)
    command = [tool.COMPILER, *common, *tool.ARCHITECTURES["sm_90"], "-S", "-o", "-", str(KERNELS / f"{family}.cpp")]
    assert not ordered_ptx(compiled(command).stdout, family), "the code is taken for right"
