# SPDX-License-Identifier: MIT
"""The RDMA devices that tests have: who sees them, and what emulated ones can be made to."""

from __future__ import annotations

import pytest

import nics
from support import run_script

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
