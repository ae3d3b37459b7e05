# SPDX-License-Identifier: MIT
"""Memory on GPUs and pinned memory: what is written is read, and nothing else is touched."""

from __future__ import annotations

import threading
from array import array
from typing import Any

import pytest

import gpus
from mori import device
from mori.device import BadStateError, InvalidArgumentError, OutOfMemoryError
from mori.tensor_utils import buffer_span
from support import pattern

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("gpu")


class TestDevices:
    def test_each_is_described(self) -> None:
        found = device.devices()
        assert found
        assert device.why_no_device() == ""
        assert [gpu.device for gpu in found] == list(range(len(found)))
        for gpu in found:
            assert gpu.api in ("CUDA", "HIP")
            assert gpu.name
            assert gpu.arch.startswith({"CUDA": "sm_", "HIP": "gfx"}[gpu.api])
            assert gpu.bus_id == gpu.bus_id.lower()
            assert gpu.bytes > 0
            assert gpu.warp in (32, 64)

    def test_memory_info(self) -> None:
        free, total = device.memory_info()
        assert 0 < free <= total

    def test_reach(self) -> None:
        assert device.reach(0, 0) == device.Reach(access=True, atomics=True, link="")
        for gpu in device.devices()[1:]:
            reach = device.reach(0, gpu.device)
            assert reach.link in (("NVLink", "xGMI", "PCIe") if reach.access else ("",))

    def test_enable_peer(self) -> None:
        device.enable_peer(0, 0)
        for gpu in device.devices()[1:]:
            if device.reach(0, gpu.device).access:
                device.enable_peer(0, gpu.device)
                device.enable_peer(0, gpu.device)
            else:
                with pytest.raises(device.UnsupportedError, match="use the memory of"):
                    device.enable_peer(0, gpu.device)

    @pytest.mark.parametrize("number", [-1, 64, 1 << 40])
    def test_a_number_that_no_gpu_has(self, number: int) -> None:
        for call in (device.memory_info, lambda n: device.DeviceMemory(16, n), device.Stream, device.Event):
            with pytest.raises(InvalidArgumentError, match=r"GPU .* does not exist"):
                call(number)

    @pytest.mark.parametrize("number", [None, "0", 0.0])
    def test_what_is_no_number(self, number: Any) -> None:
        with pytest.raises(TypeError):
            device.DeviceMemory(16, number)


class TestDeviceMemory:
    @pytest.mark.parametrize("size", [1, 7, 4096, MIB + 3])
    def test_what_is_written_is_read(self, size: int) -> None:
        content = pattern(size)
        with device.DeviceMemory(size) as memory:
            memory.write(content)
            assert memory.read() == content

    def test_parts(self) -> None:
        with device.DeviceMemory(1000) as memory:
            memory.fill(0xAA)
            memory.write(b"hello", offset=300)
            memory.write(bytearray(b"end"), offset=997)
            assert memory.read() == b"\xaa" * 300 + b"hello" + b"\xaa" * 692 + b"end"
            assert memory.read(5, offset=300) == b"hello"
            assert memory.read(offset=997) == b"end"
            assert memory.read(0) == memory.read(offset=1000) == b""
            memory.write(b"", offset=1000)

    def test_any_buffer(self) -> None:
        with device.DeviceMemory(32) as memory:
            memory.write(array("I", [1, 2, 3, 4]))
            memory.write(memoryview(b"0123456789")[2:6], offset=16)
            back = array("I", [0, 0, 0, 0])
            memory.read_into(back)
            assert back.tolist() == [1, 2, 3, 4]
            assert memory.read(4, offset=16) == b"2345"

    @pytest.mark.parametrize(("count", "offset"), [(17, 0), (1, 16), (16, 1), (0, 17), (1, -1)])
    def test_out_of_range(self, count: int, offset: int) -> None:
        with device.DeviceMemory(16) as memory:
            memory.fill(7)
            with pytest.raises(InvalidArgumentError, match="16 bytes"):
                memory.write(bytes(count), offset)
            with pytest.raises(InvalidArgumentError, match="16 bytes"):
                memory.read(count, offset)
            with pytest.raises(InvalidArgumentError, match="16 bytes"):
                memory.read_into(bytearray(count), offset)
            assert memory.read() == b"\7" * 16

    def test_what_cannot_be_written_to_or_from(self) -> None:
        with device.DeviceMemory(16) as memory:
            with pytest.raises(InvalidArgumentError, match="writable"):
                memory.read_into(b"read-only")
            with pytest.raises(InvalidArgumentError, match="contiguous"):
                memory.write(memoryview(b"0123456789")[::2])
            with pytest.raises(TypeError):
                memory.write("text")
            for byte in (-1, 256):
                with pytest.raises(InvalidArgumentError, match="0 to 255"):
                    memory.fill(byte)

    @pytest.mark.parametrize("size", [0, -1, 1 << 63])
    def test_impossible_sizes(self, size: int) -> None:
        with pytest.raises(InvalidArgumentError, match="nbytes"):
            device.DeviceMemory(size)

    def test_out_of_memory(self) -> None:
        with pytest.raises(OutOfMemoryError, match="allocate") as caught:
            device.DeviceMemory(device.memory_info().total + 1)
        assert isinstance(caught.value, MemoryError)
        with device.DeviceMemory(16) as memory:
            memory.write(b"goes on")

    def test_pinned_memory_that_the_driver_refuses(self) -> None:
        with gpus.failing("cuMemHostAlloc=2"), pytest.raises(OutOfMemoryError, match="pinned"):
            device.HostMemory(4096)
        device.HostMemory(4096).close()

    @pytest.mark.parametrize("close", [device.DeviceMemory.close, lambda memory: None], ids=["close", "last reference"])
    def test_what_is_given_back_is_free(self, close: Any) -> None:
        size = device.memory_info().total * 6 // 10  # another has no room beside it, even if others use the GPU
        for _ in range(3):
            memory = device.DeviceMemory(size)
            close(memory)
            del memory

    def test_closed(self) -> None:
        memory = device.DeviceMemory(16)
        assert not memory.closed
        memory.close()
        memory.close()
        assert memory.closed
        assert "closed" in repr(memory)
        with device.DeviceMemory(16) as other:
            for use in (
                memory.read,
                lambda: memory.write(b"x"),
                lambda: memory.read_into(bytearray(1)),
                lambda: memory.fill(0),
                lambda: memory.__cuda_array_interface__,
                lambda: device.copy(other, memory, 1),
                lambda: device.copy(memory, other, 1),
                memory.__enter__,
            ):
                with pytest.raises(BadStateError, match="closed"):
                    use()

    def test_it_is_one_thing_of_this_process(self) -> None:
        import copy
        import pickle

        with device.DeviceMemory(16) as memory:
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="DeviceMemory"):
                    duplicate(memory)

    def test_threads(self) -> None:
        wrong: list[int] = []

        def work(seed: int) -> None:
            content = pattern(64 << 10, seed)
            for _ in range(10):
                with device.DeviceMemory(len(content)) as memory:
                    memory.write(content)
                    if memory.read() != content:
                        wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not wrong


class TestHostMemory:
    def test_what_is_written_is_read(self) -> None:
        content = pattern(10_000)
        with device.HostMemory(10_000) as memory:
            memory.write(content)
            assert memory.read() == content
            memory.write(b"part", offset=9_996)
            assert memory.read(offset=9_990) == content[9_990:9_996] + b"part"
            memory.fill(9)
            assert memory.read(3) == b"\t\t\t"
            with pytest.raises(InvalidArgumentError, match="10000 bytes"):
                memory.write(b"part", offset=9_997)

    def test_gpus_copy_to_and_from_it(self) -> None:
        content = pattern(MIB)
        with device.HostMemory(MIB) as host, device.DeviceMemory(MIB) as memory, device.Stream() as stream:
            host.write(content)
            device.copy(memory, host.device_ptr, MIB, stream)
            stream.wait()
            host.fill(0)
            device.copy(host, memory, MIB, stream)
            stream.wait()
            assert host.read() == content

    def test_views(self) -> None:
        memory = device.HostMemory(64)
        memory.fill(0)
        view = memory.view()
        view[3:6] = b"abc"
        assert memory.read(8) == b"\0\0\0abc\0\0"
        part = view[:4]
        del view
        with pytest.raises(BadStateError, match="views"):
            memory.close()
        assert bytes(part) == b"\0\0\0a"
        del part
        memory.close()
        with pytest.raises(BadStateError, match="closed"):
            memory.view()

    def test_a_view_keeps_it(self) -> None:
        view = device.HostMemory(64).view()
        view[:] = bytes(range(64))
        assert bytes(view) == bytes(range(64))

    def test_numpy(self) -> None:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        with device.HostMemory(64) as memory:
            values = np.frombuffer(memory.view(), np.int32)
            values[:] = range(16)
            assert memory.read(4, offset=20) == (5).to_bytes(4, "little")
            del values


class TestCopy:
    def test_every_pair_of_kinds(self) -> None:
        content = pattern(5000)
        ordinary = [bytearray(5000) for _ in range(2)]
        with (
            device.DeviceMemory(5000) as gpu1,
            device.DeviceMemory(5000) as gpu2,
            device.HostMemory(5000) as pinned1,
            device.HostMemory(5000) as pinned2,
        ):
            places = [gpu1, gpu2, pinned1, pinned2, *(buffer_span(buffer).ptr for buffer in ordinary)]
            for src in places:
                for dst in places:
                    if dst is src:
                        continue
                    device.copy(src, buffer_span(content).ptr, 5000)
                    device.copy(dst, buffer_span(bytes(5000)).ptr, 5000)
                    device.copy(dst, src, 5000)
                    back = bytearray(5000)
                    device.copy(buffer_span(back).ptr, dst, 5000)
                    assert back == content, (src, dst)

    def test_peers(self) -> None:
        gpus.need(2)
        content = pattern(MIB)
        with device.DeviceMemory(MIB, 0) as here, device.DeviceMemory(MIB, 1) as there, device.Stream(1) as stream:
            here.write(content)
            device.copy(there, here, MIB)
            assert there.read() == content
            here.fill(0)
            device.copy(here.ptr + 100, there.ptr + 50, 1000, stream)
            stream.wait()
            assert here.read(1002, offset=99) == b"\0" + content[50:1050] + b"\0"

    def test_out_of_the_allocation(self) -> None:
        with device.DeviceMemory(MIB) as memory, device.DeviceMemory(2 * MIB) as larger:
            memory.fill(3)
            before = device.lookup(memory.ptr)
            room = before.base + before.nbytes - memory.ptr
            assert room >= MIB
            if room < 2 * MIB:
                with pytest.raises(InvalidArgumentError, match="the allocation ends after"):
                    device.copy(memory, larger, 2 * MIB)
            with pytest.raises(InvalidArgumentError, match="ends after"):
                device.copy(larger, memory, room + 1)
            assert memory.read() == b"\3" * MIB

    def test_no_address(self) -> None:
        with device.DeviceMemory(16) as memory:
            for wrong in (0, -1, 1 << 64):
                with pytest.raises(InvalidArgumentError):
                    device.copy(memory, wrong, 4)
            with pytest.raises(TypeError):
                device.copy(memory, b"bytes have no ptr", 4)
            with pytest.raises(InvalidArgumentError, match="nbytes"):
                device.copy(memory, memory, -1)

    def test_nothing(self) -> None:
        with device.DeviceMemory(16) as memory, device.Stream() as stream:
            device.copy(memory, memory, 0)
            device.copy(memory, memory, 0, stream)
            stream.wait()


class TestLookup:
    def test_kinds(self) -> None:
        gpu = device.devices()[0]
        with device.DeviceMemory(4096) as memory, device.HostMemory(4096) as pinned:
            known = device.lookup(memory.ptr + 100)
            assert (known.kind, known.device, known.api, known.ordinal) == ("device", 0, gpu.api, gpu.ordinal)
            assert known.base <= memory.ptr
            assert known.base + known.nbytes >= memory.ptr + 4096
            known = device.lookup(pinned.ptr)
            assert known.kind == "pinned host"
            assert known.host_ptr == pinned.ptr
            assert known.device_ptr == pinned.device_ptr
        assert device.lookup(buffer_span(bytearray(5)).ptr) == ("host", -1, "", -1, 0, 0, 0, 0)

    def test_what_is_freed_is_not_known(self) -> None:
        memory = device.DeviceMemory(64 * MIB)
        memory.close()
        assert device.lookup(memory.ptr).device == -1
