# SPDX-License-Identifier: MIT
"""How cases are chosen, how turns are taken and how figures are judged; no engine is needed."""

from __future__ import annotations

import gc
import json

import pytest

from mori._bench import report
from mori._bench.harness import Case, Plan, Result, Target, WrongBytes, quiet, run
from mori._bench.io import choose, host_cases

CASE = Case("shm-2x8", "stream", "GB/s", "shm", 2, 8, target=Target("ratio", ">=", 0.5))


def constant(*figures: float):
    rest = list(figures)
    return lambda: rest.pop(0) if len(rest) > 1 else rest[0]


def test_every_case_of_the_table_is_there_once() -> None:
    names = [case.name for case in host_cases()]
    assert len(set(names)) == len(names)
    assert {
        "shm-128x1MiB", "shm-1024x4KiB", "tcp-128x1MiB", "tcp-1024x4KiB", "shm-8B-latency", "tcp-8B-latency",
        "submit-1000-lists", "status-poll", "idle-cpu", "million-small-leak",
    } <= set(names)  # fmt: skip


def test_the_sizes_are_those_of_the_names() -> None:
    sizes = {case.name: case.bytes for case in host_cases()}
    assert sizes["tcp-128x1MiB"] == 128 << 20
    assert sizes["shm-1024x4KiB-read"] == 4 << 20


@pytest.mark.parametrize(
    ("names", "path", "chosen"),
    [
        ("tcp-8B-latency, status-poll", None, ["tcp-8B-latency", "status-poll"]),
        ("tcp-8B-latency,status-poll", "shm", ["status-poll"]),
    ],
)
def test_choose_takes_names_and_a_path(names: str, path, chosen: list[str]) -> None:
    assert [case.name for case in choose(names, path)] == chosen


@pytest.mark.parametrize(
    ("names", "path", "text"),
    [("shm-1x1", None, "unknown case 'shm-1x1'; known: shm-128x1MiB"), ("tcp-8B-latency", "shm", "runs on path shm")],
)
def test_choose_refuses_what_it_cannot_run(names: str, path, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        choose(names, path)


def test_the_warm_up_is_dropped_and_medians_are_told() -> None:
    ticks: list[float] = []
    plan = Plan(constant(99, 1, 3, 2), {"slow": constant(99, 2, 2, 2), "fast": constant(99, 4, 5, 3)})
    result = run(CASE, "shm", plan, 3, ticks.append)
    assert (result.value, result.raw, result.samples) == (2, 4, [1, 3, 2])
    assert result.raw_samples == {"slow": [2, 2, 2], "fast": [4, 5, 3]}
    assert ticks == [0.25] * 4


def test_ours_and_raw_take_turns_and_each_gets_a_fresh_destination() -> None:
    order: list[str] = []

    def turn(name: str):
        return lambda: order.append(name) or 1.0

    run(CASE, "shm", Plan(turn("ours"), {"raw": turn("raw")}, lambda: order.append("wipe")), 1, lambda _: None)
    assert order == ["wipe", "ours", "wipe", "raw", "wipe", "raw", "wipe", "ours"]


def test_wrong_bytes_stop_the_case() -> None:
    with pytest.raises(WrongBytes, match="shm-2x8: 3 blocks"):
        run(CASE, "shm", Plan(lambda: 1.0, verify=lambda: 3), 1, lambda _: None)


def test_no_garbage_is_collected_while_timing() -> None:
    with quiet():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("target", "value", "raw", "ok"),
    [
        (Target("ratio", ">=", 0.9), 9.0, 10.0, True),
        (Target("ratio", ">=", 0.9), 8.9, 10.0, False),
        (Target("ratio", "<=", 1.5), 16.0, 10.0, False),
        (Target("ratio", ">=", 0.9), 9.0, None, None),
        (Target("value", "<=", 6, "us"), 5.5, None, True),
        (Target("value", "<=", 6, "us"), 6.5, 1.0, False),
    ],
)
def test_targets(target: Target, value: float, raw: float | None, ok: bool | None) -> None:
    case = Case("c", "latency", "us", "shm", 1, 8, target=target)
    assert Result(case, "shm", value, raw, [value], {}, {}).ok is ok


def test_a_result_is_one_json_object_with_the_agreed_keys() -> None:
    told = json.loads(json.dumps(Result(CASE, "shm", 2.0, 4.0, [2.0], {"fast": [4.0]}, {}).as_dict()))
    agreed = {"case": "shm-2x8", "path": "shm", "bytes": 16, "value": 2.0, "unit": "GB/s", "raw": 4.0, "ratio": 0.5}
    assert agreed.items() <= told.items()


def test_the_table_has_a_line_for_each_case_and_says_what_is_below() -> None:
    results = [
        Result(CASE, "shm", 2.0, 4.0, [2.0, 2.1], {"fast": [4.0]}, {}),
        Result(CASE, "shm", 1.0, 4.0, [1.0, 1.0], {"fast": [4.0]}, {}),
    ]
    head, good, bad = report.table(results).splitlines()
    assert head.split()[:4] == ["case", "path", "ours", "unit"]
    assert good.split()[-1] == "ok"
    assert bad.split()[-1] == "BELOW"
    assert "fast" in bad
