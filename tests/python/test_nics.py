# SPDX-License-Identifier: MIT
"""The RDMA devices that tests have: who sees them, and what emulated ones can be made to."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

import nics
from support import run_script

ROOT = Path(__file__).resolve().parents[2]
DEVICES = """
import ctypes
try:
    verbs = ctypes.CDLL("libibverbs.so.1")
except OSError:
    print(0)
else:
    n = ctypes.c_int()
    verbs.ibv_get_device_list(ctypes.byref(n))
    print(n.value)
"""


@pytest.mark.usefixtures("nic")
def test_the_test_and_its_children_have_devices() -> None:
    assert len(nics.devices()) > 0
    if not nics.real():
        assert nics.devices() == ["emu0", "emu1"]
    assert int(run_script(DEVICES)) == len(nics.devices())


def test_others_have_none() -> None:
    if not nics.real():
        assert nics.devices() == []
        assert "emulated-verbs" not in run_script(f"{DEVICES}\nprint(open('/proc/self/maps').read())")


@pytest.mark.usefixtures("nic")
class TestEmulated:
    @pytest.fixture(autouse=True)
    def _only(self) -> None:
        nics.need_emulated()

    def test_a_device_is_taken_out_and_comes_back(self) -> None:
        with nics.removed(0):
            assert nics.devices() == ["emu1"]
        assert nics.devices() == ["emu0", "emu1"]

    def test_calls_fail(self) -> None:
        with nics.failing("ibv_get_device_list=38"):
            assert nics.devices() == []
        assert nics.devices() == ["emu0", "emu1"]

    def test_nothing_was_done(self) -> None:
        before = nics.bytes_done(0)
        with nics.hold(0), nics.port_down(1), nics.delays(3), nics.limits(max_qp=1):
            assert nics.bytes_done(0) == before


COMPILER = """#!/bin/sh
# Compiles nothing: notes what it is asked for and waits for the file "go".
for last; do [ "$last" != --version ] || exit 0; done
case " $* " in *" -E "*) exit 0 ;; esac
while [ "$1" != -o ]; do shift; done
basename "$2" >>"$NOTES/compiled"
n=0
while [ ! -e "$NOTES/go" ] && [ $n -lt 600 ]; do n=$((n + 1)) && sleep 0.1; done
: >"$2"
"""


@pytest.mark.parametrize("script", ["gpu/testdata/emulator.sh", "verbs/verbstest/testdata/emulator.sh"])
def test_of_two_that_want_it_one_compiles(script: str, tmp_path: Path) -> None:
    for folder in ("native", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    notes = tmp_path / "compiled"
    env = {**os.environ, "CC": str(compiler), "CXX": str(compiler), "NOTES": str(tmp_path)}
    command = ["sh", str(tmp_path / "native" / script)]
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        until = time.monotonic() + 60
        while not notes.exists() and time.monotonic() < until:
            time.sleep(0.01)
        (tmp_path / "go").touch()
        folders = {process.communicate(timeout=120)[0].strip() for process in both}
    finally:
        for process in both:
            process.kill()
    assert len(folders) == 1
    assert Path(folders.pop()).parent.parent == tmp_path / "build"
    compiled = notes.read_text().split()
    assert compiled
    assert len(compiled) == len(set(compiled))
