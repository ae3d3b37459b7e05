# SPDX-License-Identifier: MIT
"""The ``mori`` command."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import mori
import nics
from mori import device
from mori.cli import _doctor, _table, main
from support import run_script


def out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def _far(told: dict[str, Any]) -> str:
    """Return the path to other hosts: RDMA where a port can be used."""
    return "verbs/rdma" if any(not row["unused"] for row in told["verbs"]["ports"]) else "tcp"


class TestVersion:
    def test_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert mori.__version__ in out(capsys, "version")

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        told = json.loads(out(capsys, "version", "--json"))
        assert told["mori"] == mori.__version__
        assert told["native"]
        assert told["python"] == platform.python_version()


class TestDoctor:
    @pytest.mark.parametrize("name", ["check", "diagnose"])
    def test_other_names(self, capsys: pytest.CaptureFixture[str], name: str) -> None:
        assert json.loads(out(capsys, name, "--json"))["python"]["mori"] == mori.__version__

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        told = json.loads(out(capsys, "doctor", "--json"))
        assert told["python"]["mori"] == mori.__version__
        assert {"cpus", "numa", "nics", "gpus"} <= set(told["host"])
        assert isinstance(told["cma"]["ok"], bool)
        assert told["paths"]
        assert told["shmem"]["bytes per PE"] > 0

    def test_shmem_that_cannot_be(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MORI_SHMEM_DEVICE", "nowhere")
        assert "want host or gpu" in json.loads(out(capsys, "doctor", "--json"))["shmem"]["problem"]

    def test_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = out(capsys, "doctor")
        for title in (
            "Python",
            "CPUs",
            "NUMA",
            "Network",
            "RDMA",
            "GPUs",
            "Cross-memory attach",
            "Path to",
            "mori.shmem",
        ):
            assert title in text

    def test_paths_give_reasons(self, capsys: pytest.CaptureFixture[str]) -> None:
        told = json.loads(out(capsys, "doctor", "--json"))
        paths = told["paths"]
        assert len(paths) >= 3
        text = json.dumps(paths)
        assert _far(told) in text
        assert "gpu" in text.lower()

    def test_rdma(self, capsys: pytest.CaptureFixture[str]) -> None:
        told = json.loads(out(capsys, "doctor", "--json"))["verbs"]
        assert isinstance(told["library"]["ok"], bool)
        assert {"ports", "gids", "devices", "near", "memlock", "gpudirect", "problems"} <= set(told)
        assert all(row["what"] and row["remedy"] for row in told["problems"])
        assert told["ports"] or told["problems"]
        assert "RDMA library" in out(capsys, "doctor")

    def test_rdma_of_a_wrong_setting(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MORI_RDMA_DEVICES", "nonesuch7")
        told = json.loads(out(capsys, "doctor", "--json"))["verbs"]
        assert "MORI_RDMA_DEVICES names nonesuch7" in told["problems"][0]["what"]

    def test_nics(self, nic: None, capsys: pytest.CaptureFixture[str]) -> None:
        told = json.loads(out(capsys, "doctor", "--json"))
        used = [row for row in told["verbs"]["ports"] if not row["unused"]]
        assert used
        assert {row["nic"].split(":")[0] for row in used} <= set(nics.devices())
        assert all(row["gbps"] > 0 and row["mtu"] >= 256 for row in used)
        assert {row["device"] for row in told["verbs"]["devices"]} == set(nics.devices())
        assert used[0]["nic"] in {row["takes"] for row in told["verbs"]["near"]}
        assert told["paths"][1]["path"] == "verbs/rdma"
        text = out(capsys, "doctor")
        assert all(row["nic"] in text and row["gid"] in text for row in used)

    def test_nics_in_trouble(self, nic: None, capsys: pytest.CaptureFixture[str]) -> None:
        nics.need_emulated()
        with nics.port_down(0):
            told = json.loads(out(capsys, "doctor", "--json"))["verbs"]
        assert [row["unused"] for row in told["ports"]] == ["", "port is down"]
        assert told["problems"] == []
        with nics.failing("ibv_open_device=13"):
            text = out(capsys, "doctor")
        assert "permission denied" in text
        assert "--device=/dev/infiniband" in text
        assert "verbs/rdma" not in text

    def test_ports_are_columns_by_memory(self) -> None:
        row = {
            "memory": "GPU",
            "takes": "n10",
            "why": "near",
            "distances": [
                {"nic": nic, "distance": far} for nic, far in (("n10", "PIX"), ("n9", "NODE"), ("n2", "SYS"))
            ],
        }
        shown = _doctor._report({"python": {}, "host": {"cpus": 1}, "verbs": {"near": [row]}})
        lines = [line.split() for line in shown.splitlines() if "n10" in line]
        assert lines == [["memory", "takes", "n2", "n9", "n10", "why"], ["GPU", "n10", "SYS", "NODE", "PIX", "near"]]

    def test_gpus(self, gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
        told = json.loads(out(capsys, "doctor", "--json"))
        assert [row["name"] for row in told["gpus"]] == [info.name for info in device.devices()]
        assert told["no_gpu"] == ""
        paths = {row["peer"]: row for row in told["paths"]}
        assert paths["same host, GPU memory"]["path"] == "p2p/gpu"
        assert paths["other host, GPU memory"]["path"] == _far(told)
        pinned = any("pinned" in reason for reason in paths["other host, GPU memory"]["reasons"])
        assert pinned == (_far(told) == "tcp")
        text = out(capsys, "doctor")
        assert device.devices()[0].name in text
        assert "p2p/gpu" in text

    def test_gpus_without_kernels(
        self, gpu: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MORI_KERNEL_DIR", "/nonexistent")
        told = json.loads(out(capsys, "doctor", "--json"))
        assert {row["kernels"] for row in told["gpus"]} == {""}
        assert "one by one" in told["paths"][2]["reasons"][-1]
        assert "/nonexistent" in out(capsys, "doctor")

    def test_without_a_gpu(self) -> None:
        code = """
import json, sys
from mori.cli import main
assert main(["doctor", "--json"]) == 0
"""
        told = json.loads(run_script(code, FAKE_GPU_COUNT="0", CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="-1"))
        assert told["gpus"] == []
        assert told["no_gpu"].startswith("no GPU: ")
        for row in told["paths"][2:]:
            assert row["path"] == ""
            assert row["reasons"]

    def test_without_the_extension(self) -> None:
        code = """
import sys
sys.modules["mori._native._moricore"] = None
from mori.cli import main
assert main(["doctor"]) == 1
"""
        text = run_script(code)
        assert "Likely causes" in text
        assert "Python" in text


class TestEnv:
    def test_json(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MORI_NODE_ID", "here")
        rows = {row["name"]: row for row in json.loads(out(capsys, "env", "--json"))}
        assert rows["MORI_NODE_ID"]["value"] == "here"
        assert rows["MORI_NODE_ID"]["meaning"]

    def test_text(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MORI_NODE_ID", "here")
        text = out(capsys, "env")
        assert "MORI_NODE_ID" in text
        assert "MORI_IO_CP_TIMEOUT_MS" in text
        assert "MORI_IO_CP_TIMEOUT_MS" not in out(capsys, "env", "--set")

    def test_a_secret_is_not_shown(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MORI_AUTH_SECRET", "open sesame")
        for arguments in (["env", "--set"], ["env", "--json"]):
            assert main(arguments) == 0
            out = capsys.readouterr().out
            assert "open sesame" not in out
            assert "(set)" in out

    def test_unknown_variables_are_pointed_out(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MORI_TYPO", "1")
        monkeypatch.setenv("MORI_METRICS_PROT", "1")
        for arguments in (["env"], ["env", "--set"]):
            assert main(arguments) == 0
            told = capsys.readouterr().err
            assert 'mori has no variable MORI_TYPO: "mori env" lists them' in told
            assert "did you mean MORI_METRICS_PORT?" in told


class TestMain:
    def test_alone_it_lists_its_commands(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = out(capsys)
        for command in ("version", "doctor", "env", "bench", "tune", "demo"):
            assert f"\n    {command} " in text

    def test_version_as_an_option(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as info:
            main(["--version"])
        assert info.value.code == 0
        assert capsys.readouterr().out == f"mori {mori.__version__}\n"

    @pytest.mark.parametrize("arguments", [["nonsense"], ["version", "--nonsense"]])
    def test_wrong_usage(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as info:
            main(arguments)
        assert info.value.code == 2
        assert "usage" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["bench", "demo"])
    def test_arguments_are_handed_on(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[list[str]] = []
        stub = ModuleType(f"mori._{name}")
        stub.main = lambda arguments: seen.append(arguments) or 7
        monkeypatch.setitem(sys.modules, f"mori._{name}", stub)
        assert main([name, "io", "--json", "-x"]) == 7
        assert seen == [["io", "--json", "-x"]]

    def test_as_a_module(self) -> None:
        result = subprocess.run(
            [sys.executable, "-m", "mori", "version"], capture_output=True, text=True, timeout=90, check=False
        )
        assert result.returncode == 0
        assert mori.__version__ in result.stdout

    def test_help_loads_nothing_native(self) -> None:
        code = """
import sys
from mori.cli import main
try:
    main(["--help"])
except SystemExit as err:
    assert err.code == 0
assert not any("_moricore" in name for name in sys.modules)
"""
        assert "doctor" in run_script(code)


class TestTable:
    def test_columns_line_up(self) -> None:
        lines = _table.table([{"name": "a", "why": "x"}, {"name": "longer", "why": "y"}]).splitlines()
        assert [line.index(what) for line, what in zip(lines, ("why", "x", "y"), strict=True)] == [8, 8, 8]

    def test_last_column_wraps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "40")
        lines = _table.table([{"name": "a", "why": "word " * 20}]).splitlines()
        assert len(lines) > 2
        assert max(map(len, lines)) <= 40

    @pytest.mark.parametrize(
        ("value", "text"), [(None, "-"), (True, "yes"), ([1, 2], "1, 2"), ({"a": False}, "a no"), ("", "-"), (0, "0")]
    )
    def test_cells(self, value: object, text: str) -> None:
        assert _table.cell(value) == text
