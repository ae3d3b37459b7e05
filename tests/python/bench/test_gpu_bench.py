# SPDX-License-Identifier: MIT
"""`mori bench io` and `shmem` with `--device gpu`, with little work, and what finds wrong bytes on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench_command import AGREED, bench, needs_matplotlib

import gpus
from mori._bench.gpus import L2_BYTES
from mori._bench.io import GPU_CASES as IO_CASES
from mori._bench.io_side import Side
from mori._bench.shmem import GPU_CASES as SHMEM_CASES

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import bench_table as table

SMALL = ("--device", "gpu", "--quick", "--repeats", "1")
DOCS = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"
NO_GPU = {"LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}

Results = dict[str, dict[str, Any]]


def small(what: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return bench(what, *SMALL, *arguments, env=gpus.child_env())


def told(what: str, *arguments: str) -> Results:
    done = small(what, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return {one["case"]: one for one in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def io_results(gpu: None) -> Results:
    return told("io")


@pytest.fixture(scope="module")
def shmem_results(gpu: None) -> Results:
    return told("shmem")


def test_a_line_has_what_was_agreed(io_results: Results, shmem_results: Results) -> None:
    assert list(io_results) == [case.name for case in IO_CASES]
    assert list(shmem_results) == [case.name for case in SHMEM_CASES]
    for one in (*io_results.values(), *shmem_results.values()):
        assert one.keys() >= {*AGREED, "gpus", "device", "emulated", "quick"}
        assert one["gpus"] >= 1
        assert one["value"] > 0
        assert one["quick"] is True
        assert one["emulated"] is ("emulated" in one["device"].lower())
        if not one["case"].startswith(("barrier-", "put-signal-")):
            assert one["raw"] > 0
            assert one["ratio"] == pytest.approx(one["value"] / one["raw"], rel=0.01)


def test_cases_run_where_their_names_say(io_results: Results) -> None:
    for name, one in io_results.items():
        assert one["path"].partition("/")[0] == ("tcp" if "tcp" in name else "p2p"), name


@pytest.mark.parametrize("case", [case for case in IO_CASES if case.kind == "blocks"], ids=lambda case: case.name)
def test_blocks_have_each_memcpy_beside_them(io_results: Results, case: Any) -> None:
    one = io_results[case.name]
    assert set(one["raw_samples"]) == {"memcpy", "memcpy each"}
    assert one["alone"] > 0
    assert one["submit_us"] > 0
    assert one["block"] == min(case.size, 1 << 20)


def test_one_gpu_is_enough_and_told(gpu: None) -> None:
    results = told("io", "--gpus", "0", "--case", "gpu-8192x4KiB,gpu-tcp-64MiB")
    assert [one["gpus"] for one in results.values()] == [1, 1]
    done = small("io", "--gpus", "0", "--case", "gpu-4KiB-latency")
    assert done.returncode == 0, done.stderr
    assert "one GPU only" in done.stdout


def test_people_see_that_a_gpu_is_emulated(io_results: Results) -> None:
    done = small("io", "--case", "gpu-8192x4KiB-8blocks")
    assert done.returncode == 0, done.stderr
    assert "GPUs: 0 " in done.stdout
    assert ("EMULATED" in done.stdout) is next(iter(io_results.values()))["emulated"]


@needs_matplotlib
def test_the_curve_is_a_picture(gpu: None, tmp_path: Path) -> None:
    file = tmp_path / "gpu.png"
    done = small("io", "--case", "gpu-8192x4KiB,gpu-4096x64KiB,gpu-4KiB-latency", "--plot", str(file))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"\x89PNG\r\n")
    assert file.stat().st_size > 10_000


def test_a_missing_gpu_is_named() -> None:
    done = bench("io", *SMALL, env=NO_GPU)
    assert done.returncode == 1
    assert "there is no GPU to measure on: " in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--gpus", "77"], "--gpus 77: give each at most once, of 0"),
        (["--gpus", "0,0"], "--gpus 0,0: give each at most once"),
        (["--gpus", "one"], "give numbers with commas between them"),
        (["--path", "shm"], "--path is for host memory"),
        (["--case", "tcp-8B-latency"], "unknown case 'tcp-8B-latency'; known: gpu-8192x4KiB"),
    ],
)
def test_what_cannot_be_is_named(gpu: None, arguments: list[str], text: str) -> None:
    done = small("io", *arguments)
    assert done.returncode == 2
    assert text in done.stderr


@pytest.mark.parametrize("place", ["gpu", "host"])
def test_blocks_in_a_wrong_place_are_counted(gpu: None, place: Any) -> None:
    side = Side(0)
    side.make(place, 1 << 20, 70)  # more than the staging buffer holds
    try:
        here = [i << 20 for i in range(70)]
        there = list(here)
        side.blocks.fill()
        assert side.wrong(here, there, 1 << 20) == 0
        there[3], there[69] = there[69], there[3]
        assert side.wrong(here, there, 1 << 20) == 2
        side.blocks.wipe(here, 1 << 20)
        assert side.wrong(here, there, 1 << 20) == 70
    finally:
        side.drop()


# What needs no GPU.


def test_blocks_take_turns_so_that_no_cache_serves_them() -> None:
    for case in IO_CASES:
        assert case.bytes * case.batches >= 4 * L2_BYTES or case.kind == "latency", case.name
        assert case.entries == 1 or f"{case.entries}x" in case.name


def test_the_table_has_each_case_and_says_what_is_missing(io_results: Results) -> None:
    lines = [json.dumps(one) for one in io_results.values()]
    rows = table.markdown(lines).splitlines()
    names = [case.name for case in (*IO_CASES, *SHMEM_CASES)]
    assert [row.split("`")[1] for row in rows[2:]] == names
    for row in rows[2:]:
        assert row.count("|") == 7
        name = row.split("`")[1]
        assert ("not yet measured" in row) is (name not in io_results)
        assert ("quick" in row) is (name in io_results)


def test_the_table_command_reads_files_and_refuses_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    one = {"case": "gpu-4KiB-latency", "value": 14.2, "unit": "us", "raw": None, "ratio": None, "ok": False}
    good.write_text(json.dumps(one) + "\n\n")
    bad.write_text("mori bench: no\n")
    assert table.main([str(good)]) == 0
    assert "| `gpu-4KiB-latency` | 14 µs | 14.2 µs |  |  | <= 15 µs, missed |" in capsys.readouterr().out
    assert table.main([str(bad)]) == 1
    assert "not a line of mori bench --json: 'mori bench: no'" in capsys.readouterr().err
    assert table.main([str(tmp_path / "absent")]) == 1


def test_the_documentation_tells_what_was_expected_of_each_case() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for case in (*IO_CASES, *SHMEM_CASES):
        assert f"| `{case.name}` | {case.predicted.replace(' us', ' µs')} |" in text


def test_what_is_of_host_memory_stays_there_beside_gpus(gpu: None) -> None:
    env = {**gpus.child_env(), "MORI_SHMEM_DEVICE": "gpu"}
    done = bench("shmem", "--json", "--quick", "--repeats", "1", "--cases", "put-1MiB", env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["raw"] > 0
    few = ("--ranks", "2", "--tokens", "16", "--hidden", "64", "--experts", "4", "--topk", "2")
    done = bench("ep", "--json", "--quick", "--repeats", "1", "--cases", "dispatch", *few, env=env)
    assert done.returncode == 0, done.stderr
