# SPDX-License-Identifier: MIT
"""The GPUs that tests have: who sees them, and what an emulated one can be made to."""

from __future__ import annotations

import pickle

import pytest

import gpus
from mori import device
from mori.io import MemoryLocationType
from support import pattern, run_script

COUNT = "from mori import device; print(len(device.devices()))"


def test_memory_of_both_kinds(memory: gpus.Memory) -> None:
    buffer = memory.alloc(pattern(5000))
    assert bytes(buffer) == pattern(5000)
    buffer.write(b"hello", 4995)
    assert buffer.read(7, 4993) == pattern(5000)[4993:4995] + b"hello"
    assert buffer.span == (buffer.ptr, 5000, buffer.device, buffer.loc)
    on_gpu = memory.kind == "gpu"
    assert buffer.loc == (MemoryLocationType.GPU if on_gpu else MemoryLocationType.CPU)
    assert device.lookup(buffer.ptr).kind == ("device" if on_gpu else "host")
    assert bytes(pickle.loads(pickle.dumps(memory)).alloc(3)) == b"\0\0\0"


@pytest.mark.usefixtures("gpu")
def test_children_see_the_gpus() -> None:
    assert int(run_script(COUNT)) == len(device.devices()) > 0


def test_other_children_see_what_the_machine_has() -> None:
    if gpus.real():
        assert int(run_script(COUNT)) > 0
    else:
        assert "emulated" not in run_script(f"{COUNT}; print(open('/proc/self/maps').read())")


def test_a_fixture_that_decides_late(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("gpu_env")
    assert int(run_script(COUNT)) > 0


class TestEmulated:
    @pytest.fixture(autouse=True)
    def _only(self, gpu: None) -> None:
        gpus.need_emulated()

    def test_held_work_does_not_begin(self) -> None:
        with device.DeviceMemory(16) as memory, device.Stream() as stream, device.Event() as event:
            memory.fill(1)
            with device.HostMemory(16) as host:
                with gpus.hold():
                    device.copy(host, memory, 16, stream)
                    event.record(stream)
                    assert not event.done()
                event.wait(10)
                assert host.read() == b"\1" * 16

    def test_calls_fail_as_told(self) -> None:
        with gpus.failing("cuMemAlloc_v2=2,hipMalloc=2"), pytest.raises(device.OutOfMemoryError):
            device.DeviceMemory(16)
        device.DeviceMemory(16).close()

    def test_delays(self) -> None:
        with gpus.delays(1), device.DeviceMemory(64) as memory:
            memory.write(b"hello")
            assert memory.read(5) == b"hello"
