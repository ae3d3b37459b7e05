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

figures, perftest, places = import_module("figures"), import_module("perftest"), import_module("places")
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
UNMEASURED = PERFTEST.replace("21.51", " 0.00").replace("20.12", " 0.00").replace("0.000322", "0.000000")
# A server that ends at once, and a client whose first answers are of a CPU that was taken away.
SCRIPTED = """\
#!/bin/sh
cd "$(dirname "$0")"
case $* in *127.0.0.1) ;; *) exit ;; esac
echo "$*" >>asked
[ -z "$FAILS" ] || { echo "Couldn't connect"; exit "$FAILS"; }
if [ "$(wc -l <asked)" -gt "$POOR" ]; then cat measured; else cat unmeasured; echo 'r^2: 0.3 < 0.9' >&2; fi
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


def test_what_failed_is_told_and_not_run_again(tmp_path: Path) -> None:
    journal, place = Journal(tmp_path), Here()
    journal.skip(Case("elsewhere", "", ""), "wants two hosts")
    cases = [Case("good", "", "true"), Case("bad", "", "echo of no use; exit 4")]
    runner.run(place, cases, journal, {})
    assert results(journal) == {"elsewhere": "skipped: wants two hosts", "good": "ok", "bad": "exit status 4"}
    assert place.started == 1
    assert not journal.well
    assert journal.failures() == "\n=== bad: exit status 4\nof no use\n"
    assert "2 of 3 cases well" in journal.table(place.name)


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a perftest that measures nothing POOR times, or fails with FAILS."""
    (tmp_path / "measured").write_text(PERFTEST)
    (tmp_path / "unmeasured").write_text(UNMEASURED)
    tool = tmp_path / "ib_write_bw"
    tool.write_text(SCRIPTED)
    tool.chmod(0o755)
    for name, value in {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DEV0": "rxe0", "GID0": "1", "FAILS": ""}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("poor", [0, perftest.TURNS - 1])
def test_a_turn_without_a_figure_is_taken_again(scripted: Path, monkeypatch: pytest.MonkeyPatch, poor: int) -> None:
    monkeypatch.setenv("POOR", str(poor))
    assert perftest.rate("ib_write_bw", 65536, 200) == 20.12
    asked = (scripted / "asked").read_text().splitlines()
    assert asked == [f"-F -d rxe0 -p {perftest.PORT} -x 1 -s 65536 -n 200 127.0.0.1"] * (poor + 1)


def test_what_never_measures_is_told_with_all_it_said(scripted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOR", "99")
    with pytest.raises(RuntimeError) as caught:
        perftest.rate("ib_write_bw", 65536, 200)
    assert str(caught.value).startswith(f"ib_write_bw measured nothing, {perftest.TURNS} times: an average of 0.00")
    assert str(caught.value).endswith(f"{UNMEASURED}r^2: 0.3 < 0.9\n")
    monkeypatch.setenv("FAILS", "7")
    with pytest.raises(RuntimeError, match="exit status 7\nCouldn't connect"):
        perftest.rate("ib_write_bw", 65536, 200)
    assert len((scripted / "asked").read_text().splitlines()) == perftest.TURNS + 1


def test_a_case_that_measured_nothing_is_red(tmp_path: Path) -> None:
    (tmp_path / "said").write_text(UNMEASURED)
    journal = Journal(tmp_path)
    runner.run(Here(), [Case("write", "", f"cat {tmp_path}/said", figures=figures.bandwidth)], journal, {})
    assert not journal.well
    assert results(journal)["write"].startswith("no result: an average of 0.00 MiB/s")


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
