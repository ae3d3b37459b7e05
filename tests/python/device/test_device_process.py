# SPDX-License-Identifier: MIT
"""mori.device and processes: what importing costs, forks, and hosts without a GPU."""

from __future__ import annotations

import pytest

import gpus
from support import run_script


def test_importing_opens_nothing() -> None:
    code = """
import os, sys
from mori import device
assert device.DeviceMemory and device.Stream
with open("/proc/self/maps") as maps:
    mapped = maps.read()
assert "_moricore" not in mapped and "libcuda" not in mapped and "libamdhip64" not in mapped
assert len(os.listdir("/proc/self/task")) == 1
"""
    # Emulated GPUs come with the environment, and are opened by the first use of the drivers.
    run_script(code)


def test_without_a_gpu() -> None:
    code = """
from mori import device
assert device.devices() == []
assert device.why_no_device().startswith("no GPU: "), device.why_no_device()
for call in (device.memory_info, lambda: device.DeviceMemory(16), lambda: device.HostMemory(16), device.Stream,
             device.Event, lambda: device.reach(0, 0), lambda: device.Stream.borrow(0)):
    try:
        call()
    except device.UnsupportedError as err:
        assert "no GPU: " in str(err) and "mori doctor" in str(err), err
    else:
        raise AssertionError(call)
from mori.tensor_utils import buffer_span
there, here = bytearray(5), bytearray(b"hello")
assert device.lookup(buffer_span(here).ptr).kind == "host"
device.copy(buffer_span(there).ptr, buffer_span(here).ptr, 5)
assert there == here
"""
    run_script(code, FAKE_GPU_COUNT="0", CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="-1", ROCR_VISIBLE_DEVICES="")


@pytest.mark.usefixtures("gpu")
def test_a_forked_child_is_told() -> None:
    code = """
import os, sys
from mori import device
memory, stream, event = device.DeviceMemory(16), device.Stream(), device.Event()
memory.write(b"of the parent")
child = os.fork()
if child == 0:
    wrong = 1
    try:
        told = 0
        for use in (memory.read, lambda: memory.write(b"x"), stream.wait, event.record, device.devices,
                    lambda: device.DeviceMemory(16), lambda: device.copy(memory, memory.ptr + 8, 4)):
            try:
                use()
            except device.ForkError:
                told += 1
        # What the child inherited is the parent's: it neither frees it nor complains at the end.
        memory.close()
        del memory, stream, event
        wrong = 0 if told == 7 else 2
    finally:
        os._exit(wrong)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert memory.read(13) == b"of the parent"
stream.wait(10)
"""
    run_script(code)


@pytest.mark.usefixtures("gpu")
def test_leaving_without_closing() -> None:
    code = """
from mori import device
memory, host, stream = device.DeviceMemory(1 << 20), device.HostMemory(1 << 20), device.Stream()
view = host.view()
for _ in range(20):
    device.copy(host, memory, 1 << 20, stream)
"""
    run_script(code)


def amd() -> str:
    """Return the folder of AMD's driver with emulated GPUs."""
    gpus.need_emulated()
    return gpus.DRIVER.compile("hip")


@pytest.mark.usefixtures("gpu")
def test_amd() -> None:
    code = """
from mori import device
from mori.io import MemoryLocationType
from mori.tensor_utils import gpu_tensor_view, tensor_span
gpu = device.devices()[-1]
assert (gpu.api, gpu.arch[:3]) == ("HIP", "gfx"), gpu
n = gpu.device
with device.DeviceMemory(4096, n) as memory, device.HostMemory(4096) as host, device.Stream(n) as stream:
    memory.write(b"hello", offset=7)
    assert memory.read(5, offset=7) == b"hello"
    start = stream.record_event()
    device.copy(host, memory, 4096, stream)
    end = stream.record_event()
    end.wait(10)
    assert end.elapsed_ms(start) >= 0
    assert host.read(5, offset=7) == b"hello"
    assert tensor_span(memory) == (memory.ptr, 4096, gpu.ordinal, MemoryLocationType.GPU)
    view = gpu_tensor_view(memory.ptr, (4, 4), "float32", gpu.ordinal)
    assert view.__dlpack_device__() == (10, gpu.ordinal)
    try:
        device.DeviceMemory(1 << 50)
    except device.OutOfMemoryError:
        pass
    else:
        raise AssertionError("1 PiB")
"""
    run_script(code, LD_LIBRARY_PATH=amd())


@pytest.mark.usefixtures("gpu")
def test_both_vendors() -> None:
    code = """
from mori import device
from mori.tensor_utils import tensor_span
assert [(gpu.api, gpu.ordinal) for gpu in device.devices()] == [("CUDA", 0), ("CUDA", 1), ("HIP", 0), ("HIP", 1)]
assert not device.reach(1, 2).access
with device.DeviceMemory(64, 1) as green, device.DeviceMemory(64, 3) as red:
    green.write(b"hello")
    red.write(b"world")
    assert (green.read(5), red.read(5)) == (b"hello", b"world")
    assert [(device.lookup(m.ptr).device, tensor_span(m).device_id) for m in (green, red)] == [(1, 1), (3, 1)]
    try:
        device.copy(red, green, 5)
    except device.InvalidArgumentError as err:
        assert "no driver can access both" in str(err)
    else:
        raise AssertionError("copied")
    red.write(green.read())
    assert red.read(5) == b"hello"
"""
    folders = [amd(), gpus.child_env()["LD_LIBRARY_PATH"]]
    run_script(code, LD_LIBRARY_PATH=":".join(folders), FAKE_GPU_COUNT="2")
