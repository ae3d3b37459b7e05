# SPDX-License-Identifier: MIT
"""`mori bench shmem` and `mori bench ep`: the commands with little work, and what finds wrong bytes."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from bench_command import AGREED, bench, needs_matplotlib

from mori._bench import shmem as shmem_suite
from mori._bench.ep_rows import Array, Layer, Sizes, encode
from mori._bench.harness import Unavailable
from mori._bench.process import Group, RemoteError
from mori._bench.raw import openshmem
from mori._bench.raw.openshmem import Library

SMALL = ("--quick", "--repeats", "1")
FEW = ("--ranks", "2", "--tokens", "16", "--hidden", "64", "--experts", "4", "--topk", "2")
needs_openshmem = pytest.mark.skipif(openshmem.missing() is not None, reason=str(openshmem.missing()))
needs_ml_dtypes = pytest.mark.skipif(importlib.util.find_spec("ml_dtypes") is None, reason="ml_dtypes is not installed")
MIB = 1 << 20


def told(*arguments: str, env: dict[str, str] | None = None) -> list[dict]:
    done = bench(*arguments, "--json", *SMALL, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def pes() -> Iterator[Group]:
    with Group("mori._bench.shmem_pe:PE", 2, 64 * MIB) as group:
        yield group


# shmem


def test_shmem_measures_each_operation_in_all_its_forms() -> None:
    names = [case.name for case in shmem_suite.CASES if case.form != "openshmem" and case.pes < 8]
    results = told("shmem", "--cases", ",".join(names))
    assert [one["case"] for one in results] == names
    for one in results:
        assert one.keys() >= AGREED
        assert one["value"] > 0
        assert one["raw"] > 0
        assert one["path"] == "mapped"
        assert one["form"] == ("python" if one["case"].endswith("-python") else "native")
        assert one["unit"] == ("GB/s" if one["bytes"] == MIB else "ns")


@needs_openshmem
def test_shmem_is_held_against_an_openshmem_library() -> None:
    names = [case.name for case in shmem_suite.CASES if case.form == "openshmem"]
    results = told("shmem", "--cases", ",".join(names))
    assert [one["case"] for one in results] == names
    for one in results:
        assert list(one["raw_samples"]) == ["OpenSHMEM"]
        assert one["raw"] > 0


@needs_matplotlib
def test_shmem_draws_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "shmem.png"
    done = bench("shmem", *SMALL, "--cases", "put-1MiB,fetch-add", "--plot", str(file))
    assert done.returncode == 0, done.stderr
    assert "fetch_add instruction" in done.stdout
    assert file.read_bytes().startswith(b"\x89PNG\r\n")


def test_without_an_openshmem_library_shmem_says_so(tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path)}
    done = bench("shmem", *SMALL, "--cases", "swap,swap-openshmem", env=bare)
    assert done.returncode == 2
    assert "unknown case 'swap-openshmem'" in done.stderr
    done = bench("shmem", *SMALL, "--cases", "swap,put-1MiB-openshmem", env=bare)
    assert done.returncode == 1
    assert "put-1MiB-openshmem: oshcc and oshrun not found" in done.stderr
    assert "swap instruction" in done.stdout, "the other case has run"


def test_shmem_leaves_cases_out_for_which_there_is_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    args = argparse.Namespace(cases=None, quick=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    suite = shmem_suite.Shmem(args)
    assert all(case.form != "openshmem" for case in suite.cases)
    assert any("no OpenSHMEM to compare with: oshcc and oshrun not found" in line for line in suite.how)


def test_bytes_that_did_not_arrive_are_counted(pes: Group) -> None:
    pes.one(0, "own.fill")
    pes.one(1, "symmetric.wipe")
    assert pes.one(1, "symmetric.wrong", MIB) == MIB // 4096
    assert pes.one(1, "symmetric.wrong", 8, {0: 0}) == 1
    assert pes.one(0, "native", "put", MIB // 2, 1, 1, 1) > 0
    assert pes.one(1, "symmetric.wrong", MIB) == MIB // 8192
    assert pes.one(1, "symmetric.wrong", 8, {0: 0}) == 0
    assert pes.one(0, "raw", "memcpy", MIB, 1, 1, 1) > 0
    assert pes.one(1, "symmetric.wrong", MIB) == 0


@pytest.mark.parametrize("what", ["fetch_add", "swap", "compare_swap"])
@pytest.mark.parametrize("form", ["native", "raw"])
def test_atomics_count_their_rounds(pes: Group, form: str, what: str) -> None:
    pes.one(1, "symmetric.wipe")
    pes.one(0, form, what, 8, 1, 7, 3)
    assert pes.one(1, "word") == 21


@pytest.mark.parametrize("form", ["native", "raw"])
def test_what_both_do_at_once_is_counted_twice(pes: Group, form: str) -> None:
    pes.one(1, "symmetric.wipe")
    figures = pes.each("at_once", form, "fetch_add", 8, 100, 3)
    assert [len(runs) for runs in figures] == [3, 3]
    assert pes.one(1, "word") == 600


def test_barriers_of_flags_follow_one_another(pes: Group) -> None:
    for _ in range(3):
        assert all(ns > 0 for ns in pes.each("raw_barrier", 20, 2))


@pytest.mark.parametrize(
    ("method", "arguments", "text"),
    [
        ("native", ("swim", 8, 1, 1, 1), 'measure "swim"'),
        ("native", ("put", 8, 1, 0, 1), "0 rounds 1 times"),
        ("native", ("put", 8, 2, 1, 1), "PE 2 does not exist"),
        ("raw", ("barrier", 8, 1, 1, 1), 'measure "barrier"'),
        ("raw", ("swap", 8, 2, 1, 1), "PE 2 is not mapped"),
        ("raw", ("swap", 8, 1, 1, -1), "1 rounds -1 times"),
    ],
)
def test_what_cannot_be_measured_is_an_error(pes: Group, method: str, arguments: tuple, text: str) -> None:
    with pytest.raises(RemoteError, match=text):
        pes.one(0, method, *arguments)


# The OpenSHMEM library


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of commands that precede all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def command(tools: Path, name: str, text: str) -> None:
    (tools / name).write_text(f"#!/bin/sh\n{text}\n")
    (tools / name).chmod(0o755)


@pytest.mark.parametrize(
    ("oshcc", "oshrun", "text"),
    [
        ("echo no shmem.h >&2; exit 1", "exit 0", "oshcc openshmem.c: no shmem.h"),
        ("exit 0", "echo no slots >&2; exit 3", "oshrun ended with status 3: no slots"),
        ("exit 0", "echo some library; echo hello; cat > /dev/null", "it answered 'hello' to put"),
    ],
)
def test_a_library_that_does_not_run_is_named(tools: Path, oshcc: str, oshrun: str, text: str) -> None:
    command(tools, "oshcc", oshcc)
    command(tools, "oshrun", oshrun)
    with closing(Library()) as library, pytest.raises(Unavailable, match=text):
        library.measure("put", 8, 1, 1)


@needs_openshmem
def test_a_library_answers_more_than_once_and_ends() -> None:
    with closing(Library()) as library:
        assert library.measure("put_quiet", 8, 10, 2) > 0
        assert library.measure("barrier", 0, 10, 2) > 0
        assert library.measure("barrier", 0, 10, 2) > 0
        assert library.name
        process = library._process
    assert process is not None
    assert process.returncode == 0


# ep


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float32", 4),
        pytest.param("bfloat16", 2, marks=needs_ml_dtypes),
        pytest.param("float8_e4m3fn", 1, marks=needs_ml_dtypes),
    ],
)
def test_ep_measures_dispatch_and_combine(dtype: str, size: int) -> None:
    results = told("ep", *FEW, "--dtype", dtype)
    assert [one["case"] for one in results] == [
        "dispatch",
        "combine",
        "combine-in-place",
        "dispatch-128",
        "combine-128",
    ]
    for one in results:
        assert one.keys() >= AGREED
        assert one["dtype"] == dtype
        assert one["value"] > 0
        assert one["raw"] > 0
        assert one["tokens"] == (128 if one["case"].endswith("128") else 16)
        assert one["tokens"] * 2 <= one["rows"] <= one["tokens"] * 4, "each token goes to one rank or to both"
        assert one["bytes"] == one["rows"] * 64 * size


def test_ep_tells_people_its_sizes() -> None:
    done = bench("ep", *FEW, *SMALL, "--cases", "combine", "--dtype", "float32")
    assert done.returncode == 0, done.stderr
    assert "16 x 64 float32, top 2 of 4 experts, 2 ranks" in done.stdout
    assert "memcpy" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cases", "swim"], "unknown case 'swim'; known: dispatch"),
        (["--ranks", "3"], "--experts 32 do not spread evenly over 3 ranks"),
        (["--topk", "33"], "--topk: a token cannot choose 33 of 32 experts"),
        (["--hidden", "0"], "--hidden must be at least 1, got 0"),
        (["--dtype", "float16"], "invalid choice: 'float16'"),
    ],
)
def test_sizes_that_cannot_be_are_named(arguments: list[str], text: str) -> None:
    done = bench("ep", *arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stdout == ""


def test_ep_that_would_not_fit_into_memory_is_refused() -> None:
    done = bench("ep", "--tokens", "40000000")
    assert done.returncode == 1
    assert "fewer --tokens" in done.stderr


# What finds wrong rows, on a layer small enough to dispatch by hand

SIZES = Sizes(tokens=12, hidden=16, experts=6, topk=2, ranks=3)


@pytest.fixture(scope="module", params=["ml_dtypes", "torch"])
def layer(request: pytest.FixtureRequest) -> Layer:
    pytest.importorskip(request.param)
    return Layer(SIZES, "bfloat16", request.param)


def dispatched(layer: Layer, me: int, n: int) -> tuple[Array, Array, Array]:
    """The rows of rank `me`, with rank and token of each."""
    places = [(rank, token) for rank in range(3) for token in np.flatnonzero(layer.goes(rank, n)[:, me])]
    rows = np.stack([layer.tokens(rank)[token] for rank, token in places])
    rank, token = np.array(places).T
    return rows, rank, token


def wrong_rows(layer: Layer, me: int, n: int, rows: Array, rank: Array, token: Array, first: int = 0) -> int:
    """Count the rows that are lost, and those that differ from the tokens from `first` on."""
    return layer.lost_rows(me, n, rank, token) + layer.different_rows(rows, rank, token + first)


def test_right_rows_are_right_in_any_order(layer: Layer) -> None:
    rows, rank, token = dispatched(layer, 1, 12)
    order = np.random.default_rng(1).permutation(len(rows))
    assert wrong_rows(layer, 1, 12, rows[order], rank[order], token[order]) == 0


def test_wrong_lost_and_doubled_rows_are_found(layer: Layer) -> None:
    rows, rank, token = dispatched(layer, 1, 12)
    changed = rows.copy()
    changed[3, 5] ^= 1
    assert wrong_rows(layer, 1, 12, changed, rank, token) == 1
    assert wrong_rows(layer, 1, 12, rows[1:], rank[1:], token[1:]) == 1
    twice = np.r_[0, np.arange(len(rows))]
    assert wrong_rows(layer, 1, 12, rows[twice], rank[twice], token[twice]) == 1
    assert wrong_rows(layer, 1, 12, np.roll(rows, 1, 0), rank, token) > 1


def test_sums_are_the_rows_times_the_ranks(layer: Layer) -> None:
    times = layer.goes(2, 12).sum(1)
    assert set(times) == {1, 2}
    floats = (layer.tokens(2).astype(np.uint32) << 16).view(np.float32)  # bfloat16 is the upper half of a float32
    sums = encode(floats * times[:, None].astype(np.float32), "bfloat16", "ml_dtypes")
    assert layer.wrong_sums(2, 12, sums) == 0
    sums[4, 0] ^= 1
    assert layer.wrong_sums(2, 12, sums) == 1


def test_tokens_differ_and_experts_are_drawn_without_repeats(layer: Layer) -> None:
    all_tokens = np.concatenate([layer.tokens(rank) for rank in range(3)])
    assert len(np.unique(all_tokens, axis=0)) == len(all_tokens)
    for row in layer.indices(1, 12):
        assert len(set(row)) == 2
        assert all(0 <= expert < 6 for expert in row)
