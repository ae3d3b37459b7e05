# SPDX-License-Identifier: MIT
"""What runs the RDMA cases (tests/rdma) bounds them, survives the death of a machine and reads figures rightly."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

RDMA = Path(__file__).resolve().parents[2] / "rdma"
sys.path[:0] = [str(RDMA), str(RDMA.parent / "gpu")]

figures, places = import_module("figures"), import_module("places")
Case, Journal = import_module("cases").Case, import_module("journal").Journal

loader = SourceFileLoader("rdma_run", str(RDMA / "run"))
spec = importlib.util.spec_from_loader("rdma_run", loader)
assert spec is not None
runner = importlib.util.module_from_spec(spec)
loader.exec_module(runner)

PERFTEST = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      200              21.51              20.12              0.000322
---------------------------------------------------------------------------------------
"""


class Here(places.Place):
    """A machine without devices: the process of tests/rdma/node."""

    name = "here"
    started = 0

    def why_not(self, case: Case) -> str:
        return ""

    def start(self, out: Path, cases: list[Case], env: dict[str, str]) -> subprocess.Popen[str]:
        self.started += 1
        env = {**os.environ, **env}
        return subprocess.Popen([str(places.NODE), str(out)], env=env, stdout=subprocess.PIPE, text=True)


class Nowhere(Here):
    """A machine that does not come up."""

    def start(self, out: Path, cases: list[Case], env: dict[str, str]) -> subprocess.Popen[str]:
        self.started += 1
        return subprocess.Popen(["false"], stdout=subprocess.PIPE, text=True)


def results(journal: Journal) -> dict[str, str]:
    return {name: outcome.result for name, outcome in journal.done.items()}


def test_cases_run_one_after_the_other_and_keep_what_they_print(tmp_path: Path) -> None:
    journal, place = Journal(tmp_path), Here()
    cases = [Case("good", "", 'echo "$CASE on $DEV"; echo oops >&2'), Case("bad", "", "echo words; exit 3"),
             Case("quiet", "", "true", figures=figures.tests), Case("hangs", "", "sleep 600", limit=0.6)]
    runner.run(place, cases, journal, {"DEV": "emu0"})
    assert results(journal) == {"good": "ok", "bad": "exit status 3", "quiet": "no result: no test ran",
                                "hangs": "stopped after 1 s"}
    assert journal.log("good") == "good on emu0\noops\n"
    assert not journal.well
    assert "=== bad: exit status 3\nwords\n" in journal.failures()
    assert "1 of 4 cases well, in: here" in journal.table(place.name)
    assert place.started == 1


def test_a_machine_that_dies_is_replaced_for_the_rest(tmp_path: Path) -> None:
    journal, place = Journal(tmp_path), Here()
    kill = "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)"  # the shell is a child of timeout, and that of node
    runner.run(place, [Case("first", "", "true"), Case("deadly", "", kill), Case("last", "", "true")], journal, {})
    assert results(journal) == {"first": "ok", "deadly": "the machine died", "last": "ok"}
    assert place.started == 2


def test_no_machine_is_tried_once_and_told_for_every_case(tmp_path: Path) -> None:
    journal, place = Journal(tmp_path), Nowhere()
    runner.run(place, [Case("one", "", "true"), Case("two", "", "true")], journal, {})
    assert set(results(journal).values()) == {"not run: no machine came up"}
    assert place.started == 1


def test_of_two_nodes_both_must_end_well(tmp_path: Path) -> None:
    cases = [Case("a", "", "", nodes=2), Case("b", "", "", nodes=2), Case("c", "", "", nodes=2)]
    lines = ["[0] @ begin a", "noise", "[1] @ begin a", "[1] @ end a 0", "[0] @ end a 1", "[0] @ begin b",
             "[1] @ begin b", "[0] @ end b 0", "[1] @ end b 0", "[1] @ begin c", "[1] @ end c 124"]
    journal = Journal(tmp_path)
    journal.follow(cases, lines)
    assert results(journal) == {"a": "exit status 1", "b": "ok", "c": "the machine died"}


def test_figures_are_read() -> None:
    assert figures.bandwidth(PERFTEST) == {"MiB/s": 20.12, "messages/s": pytest.approx(322)}
    pingpong = "8192000 bytes in 0.42 seconds = 155 Mbit/sec\n1000 iters in 0.42 seconds = 422.36 usec/iter\n"
    assert figures.pingpong(pingpong) == {"us": 422.36}
    go = "--- PASS: TestA (0s)\n    --- PASS: TestA/b (0s)\n    --- PASS: TestA/c (0s)\n--- SKIP: TestB (0s)\nPASS\n"
    assert figures.tests(go) == {"passed": 2, "skipped": 1}
    python = "....s [100%]\n=== 4 passed, 1 skipped, 9 deselected in 12.31s ===\n"
    assert figures.tests(python) == {"passed": 4, "skipped": 1}
    bench = 'a note\n{"case": "verbs-1", "ratio": 0.934}\n{"case": "submit", "ratio": null}\n'
    assert figures.words(figures.ratios(bench)) == "0.93 x raw (verbs-1)"
    for text in ("", "testing: warning: no tests to run\nPASS\n", "3 skipped in 0.1s"):
        with pytest.raises(ValueError, match="no test ran"):
            figures.tests(text)
    with pytest.raises(ValueError, match="no row"):
        figures.bandwidth("Couldn't connect to server\n")


def device(root: Path, name: str, state: str, link: str, gids: dict[int, tuple[str, str]]) -> None:
    port = root / name / "ports" / "1"
    (port / "gid_attrs" / "types").mkdir(parents=True)
    (port / "gids").mkdir()
    (port / "state").write_text(state + "\n")
    (port / "link_layer").write_text(link + "\n")
    for index, (gid, kind) in gids.items():
        (port / "gids" / str(index)).write_text(gid + "\n")
        (port / "gid_attrs" / "types" / str(index)).write_text(kind + "\n")


def test_active_devices_and_their_gids_are_found(tmp_path: Path) -> None:
    local, v4 = "fe80:0000:0000:0000:5044:4dff:fe41:000a", "0000:0000:0000:0000:0000:ffff:c612:000a"
    device(tmp_path, "mlx5_0", "4: ACTIVE", "Ethernet",
           {0: (local, "IB/RoCE v1"), 1: (local, "RoCE v2"), 2: (v4, "IB/RoCE v1"), 3: (v4, "RoCE v2")})
    device(tmp_path, "mlx5_1", "1: DOWN", "Ethernet", {})
    device(tmp_path, "mlx5_2", "4: ACTIVE", "InfiniBand", {0: (local, "IB/RoCE v1")})
    found = places.active_devices(tmp_path)
    assert [path.name for path in found] == ["mlx5_0", "mlx5_2"]
    assert [places.gid_index(path) for path in found] == ["3", ""]
    native = places.Native(found)
    assert native.why_not(Case("loss", "", "", alters=True))
    assert native.why_not(Case("two", "", "", nodes=2))
    assert not native.why_not(Case("one", "", ""))


def test_the_list_of_cases_is_sound() -> None:
    cases = import_module("cases").CASES
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    for case in cases:
        assert not {"\t", "\n"} & set(case.command), case.name
        assert not case.package or (RDMA.parents[1] / case.package).is_dir(), case.name
