# SPDX-License-Identifier: MIT
"""`mori bench ep --device gpu` and `mori tune ep`, with little work, and what finds wrong rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_command import AGREED, bench, needs_matplotlib

import gpus
from mori._bench import ep as ep_cases
from mori._bench.ep_rows import Array, Layer, Sizes, encode
from mori._bench.raw.nccl import why_no_cuda
from mori._tune import tables
from mori._tune.ep import BLOCKS, CALLS, launches

pytestmark = pytest.mark.timeout(240)
SMALL = ("--device", "gpu", "--quick", "--repeats", "2", "--hidden", "256", "--no-nccl")
ASKED = {"case", "gpus", "tokens", "dtype", "blocks", "mode", "us", "gbps", "yardstick", "ratio"}
CASES = (
    "dispatch-128-fp8-eager",
    "dispatch-4096-bf16-skewed-eager",
    "combine-128-bf16-eager",
    "combine-in-place-1-bf16-eager",
    "both-8-bf16-eager",
)


def mori(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mori", *arguments]
    whole = {**os.environ, **gpus.child_env(), **env}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=whole, check=False)


@pytest.fixture(scope="module")
def results(gpu: None) -> dict[str, dict[str, Any]]:
    done = mori("bench", "ep", *SMALL, "--json", "--cases", ",".join(CASES))
    assert done.returncode == 0, done.stderr
    return {one["case"]: one for one in map(json.loads, done.stdout.splitlines())}


def test_a_line_has_what_was_agreed(results: dict[str, dict[str, Any]]) -> None:
    assert list(results) == list(CASES)
    for name, one in results.items():
        assert one.keys() >= ASKED | AGREED
        assert one["us"] > 0
        assert one["us"] == pytest.approx(one["value"], rel=0.01)
        assert one["mode"] == "eager"
        assert one["host_us"] > 0
        assert one["no_nccl"]
        if one["gpus"] > 1 and one["bytes"]:
            assert one["ratio"] == pytest.approx(one["us"] / one["yardstick"], rel=0.01), name


def test_bytes_are_those_on_the_wire(results: dict[str, dict[str, Any]]) -> None:
    one = results["dispatch-128-fp8-eager"]
    row = 256 + 4 * 2  # elements and scales
    most = one["tokens"] * row * (one["gpus"] - 1)
    assert one["bytes"] % row == 0
    assert 0 <= one["bytes"] <= most


@pytest.mark.parametrize("nic", ["", "emu0"])
def test_ranks_may_behave_as_on_several_hosts(gpu: None, nic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORI_SHMEM_NIC", nic)
    gpus.need(2)
    cases = "dispatch-128-fp8-eager,combine-128-bf16-eager,both-8-bf16-eager"
    done = mori("bench", "ep", *SMALL, "--json", "--gpus", "0,1", "--hosts", "2", "--cases", cases)
    assert done.returncode == 0, done.stderr
    for one in map(json.loads, done.stdout.splitlines()):
        assert (one["hosts"], one["gpus"], one["yardstick"]) == (2, 2, None)
        assert one["us"] > 0


def test_cases_with_graphs_say_what_they_lack(gpu: None) -> None:
    done = mori("bench", "ep", *SMALL, "--json", "--cases", "dispatch-1-bf16")
    if why_no_cuda():
        assert done.returncode == 1
        assert "dispatch-1-bf16: CUDA graphs: " in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["mode"] == "graph"


def test_people_get_a_table(gpu: None) -> None:
    done = mori("bench", "ep", *SMALL, "--gpus", "0", "--cases", "dispatch-1-bf16-eager")
    assert done.returncode == 0, done.stderr
    assert "one GPU only" in done.stdout
    assert "dispatch-1-bf16-eager" in done.stdout


@needs_matplotlib
def test_the_curves_are_a_picture(gpu: None, tmp_path: Path) -> None:
    file = tmp_path / "ep.png"
    done = mori("bench", "ep", *SMALL, "--cases", ",".join(CASES[:3]), "--plot", str(file))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--gpus", "77"], "--gpus 77"),
        (["--cases", "dispatch"], "unknown case 'dispatch'"),
        (["--topk", "9", "--experts", "8"], "a token cannot choose 9 of 8 experts"),
        (["--gpus", "0,1", "--experts", "3", "--topk", "1"], "do not spread evenly over 2 GPUs"),
        (["--tokens", "3"], "--tokens 3: no case has so many"),
        (["--gpus", "0,1", "--hosts", "3"], "--hosts 3: 2 ranks do not spread evenly over them"),
    ],
)
def test_what_cannot_be_is_named(gpu: None, arguments: list[str], text: str) -> None:
    if "0,1" in arguments:
        gpus.need(2)
    done = bench("ep", "--device", "gpu", "--quick", *arguments, env=gpus.child_env())
    assert done.returncode == 2
    assert text in done.stderr


def test_names_are_unique_and_say_what_is_measured() -> None:
    for cases in (ep_cases.full(), ep_cases.usual()):
        assert len({one.name for one in cases}) == len(cases)
        for one in cases:
            words = one.name.split("-")
            assert str(one.tokens) in words
            assert ("eager" in words) == (one.mode == "eager")
            assert ("skewed" in words) == one.skewed
            assert (f"{one.blocks}blocks" in words) == (one.blocks is not None)
            assert one.calls * one.rounds * 9 >= 200, "iterations of nine samples"


# Rows.


@pytest.fixture(scope="module")
def layer() -> Layer:
    return Layer(Sizes(64, 32, 16, 4, 2), "bfloat16", "ml_dtypes")


def wrong_rows(layer: Layer, me: int, n: int, rows: Array, rank: Array, token: Array, first: int = 0) -> int:
    """Count the rows that are lost, and those that differ from the tokens from `first` on."""
    return layer.lost_rows(me, n, rank, token) + layer.different_rows(rows, rank, token + first)


def test_wrong_rows_are_counted(layer: Layer) -> None:
    first, n = 16, 10
    goes = np.flatnonzero(layer.goes(1, n)[:, 0])
    rank = np.concatenate([np.zeros(layer.goes(0, n)[:, 0].sum(), np.int64), np.ones(len(goes), np.int64)])
    token = np.concatenate([np.flatnonzero(layer.goes(0, n)[:, 0]), goes])
    rows = np.stack([layer.tokens(int(r))[first + t] for r, t in zip(rank, token, strict=True)])
    assert wrong_rows(layer, 0, n, rows, rank, token, first) == 0
    assert wrong_rows(layer, 0, n, rows, rank, token, first + 1) == len(rows), "those of another batch"
    rows[3, 5] ^= 1
    assert wrong_rows(layer, 0, n, rows, rank, token, first) == 1
    assert layer.lost_rows(0, n, rank[1:], token[1:]) == 1


def test_wrong_sums_are_counted(layer: Layer) -> None:
    n, first = 8, 24
    times = layer.goes(0, n).sum(1)
    tokens = (layer.tokens(0)[first : first + n].astype(np.uint32) << 16).view(np.float32)
    rows = encode(times[:, None].astype(np.float32) * tokens, "bfloat16", "ml_dtypes")
    assert layer.wrong_sums(0, n, rows, first) == 0
    rows[2, 0] ^= 0x40
    assert layer.wrong_sums(0, n, rows, first) == 1
    assert layer.wrong_sums(0, n, rows[:2], first) == 0, "of some tokens"


def test_skewed_routing_prefers_the_first_experts() -> None:
    sizes = Sizes(64, 32, 256, 8, 2)
    even, skewed = (Layer(sizes, "bfloat16", "ml_dtypes", is_skewed) for is_skewed in (False, True))
    shares = [(one.indices(0, 64) < 128).mean() for one in (even, skewed)]
    assert shares[0] == pytest.approx(0.5, abs=0.1)
    assert shares[1] > 0.75
    chosen = np.sort(skewed.indices(0, 64), 1)
    assert (chosen[:, 1:] != chosen[:, :-1]).all(), "an expert is chosen once"


# mori tune ep.


def test_a_table_is_written_and_used(gpu: None, tmp_path: Path) -> None:
    file = tmp_path / "folder" / "tables.json"
    small = ("tune", "ep", "--quick", "--hidden", "256", "--tokens", "1,8")
    done = mori(*small, "--json", MORI_EP_TUNING_CONFIG=str(file))
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 2 * len(CALLS)
    [kept] = json.loads(file.read_text())["tables"]
    assert [rule["tokens"] for rule in kept["rules"]] == [1] * len(CALLS) + [8] * len(CALLS)
    assert {rule["call"] for rule in kept["rules"]} == {name for name, *_ in CALLS}
    done = mori(*small, "--gpus", "0", "--output", str(file))
    assert done.returncode == 0, done.stderr
    assert str(file) in done.stdout
    assert [one["ranks"] for one in json.loads(file.read_text())["tables"]] == [kept["ranks"], 1]
    shown = mori("tune", "ep", "--show", MORI_EP_TUNING_CONFIG=str(file))
    assert shown.returncode == 0, shown.stderr
    assert "a GPU that is here" in shown.stdout
    assert "MORI_EP_TUNING_CONFIG names it" in shown.stdout


def test_a_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = mori("tune", "ep", "--show", MORI_EP_TUNING_CONFIG=str(tmp_path / "none"))
    assert done.returncode == 1
    assert "no such file" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--tokens", "many"], "--tokens many: give numbers"),
        (["--tokens", "0"], "--tokens must be at least 1"),
        (["--blocks", "-1"], "--blocks must be at least 0, got -1"),
        (["--show", "--output", "x"], "--show is of the file that ops read"),
    ],
)
def test_what_cannot_be_tuned_is_named(arguments: list[str], text: str) -> None:
    done = mori("tune", "ep", *arguments)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    for text in ("not JSON", "[]", '{"version": 2, "tables": []}', '{"version": 1, "tables": [1]}'):
        file.write_text(text)
        with pytest.raises(ValueError, match="is not a file of tuning tables"):
            tables.store(file, "a GPU", 2, [])
        assert file.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["notes"], "no draft is left behind"


def test_launches_stay_within_what_is_asked_for() -> None:
    assert launches(132)[0] == (1, 4)
    assert {blocks for blocks, _ in launches(132)} == set(BLOCKS)
    assert max(blocks for blocks, _ in launches(132, most_blocks=24)) == 24
    assert max(blocks for blocks, _ in launches(2)) == 2
