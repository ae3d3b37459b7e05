# SPDX-License-Identifier: MIT
"""Arrays over GPU memory as addresses, and addresses as arrays, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import gpus
from mori import _gpu_view, device
from mori.io import MemoryLocationType
from mori.tensor_utils import from_gpu_ptr, gpu_tensor_view, tensor_span
from support import pattern

pytestmark = pytest.mark.usefixtures("gpu")

DEVICE_TYPES = {"CUDA": 2, "HIP": 10}  # DLPack's numbers


class Array:
    """An array as cupy and numba have them."""

    def __init__(self, ptr: int, shape: tuple[int, ...], typestr: str = "<f4", **more: Any) -> None:
        data = {"shape": shape, "typestr": typestr, "data": (ptr, False), "version": 3, "strides": None}
        self.__cuda_array_interface__ = {**data, **more}


class TestSpan:
    @pytest.mark.parametrize("number", [0, -1], ids=["first GPU", "last GPU"])
    def test_device_memory(self, number: int) -> None:
        gpu = device.devices()[number]
        with device.DeviceMemory(4096, gpu.device) as memory:
            assert tensor_span(memory) == (memory.ptr, 4096, gpu.ordinal, MemoryLocationType.GPU)
            part = Array(memory.ptr + 1024, (8, 16))
            assert tensor_span(part) == (memory.ptr + 1024, 512, gpu.ordinal, MemoryLocationType.GPU)
            view = gpu_tensor_view(memory.ptr, (4, 8), "bfloat16", gpu.ordinal)
            assert tensor_span(view) == (memory.ptr, 64, gpu.ordinal, MemoryLocationType.GPU)

    def test_pinned_memory_is_the_hosts(self) -> None:
        with device.HostMemory(4096) as memory:
            assert tensor_span(Array(memory.ptr, (16,))) == (memory.ptr, 64, -1, MemoryLocationType.CPU)

    @pytest.mark.parametrize(
        ("shape", "strides"),
        [((2, 3), (12, 4)), ((1, 3), (999, 4)), ((2, 1, 3), (12, 77, 4)), ((), ()), ((0, 5), (4, 4))],
    )
    def test_contiguous(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        with device.DeviceMemory(64) as memory:
            size = 4
            for extent in shape:
                size *= extent
            assert tensor_span(Array(memory.ptr, shape, strides=strides))[:2] == (memory.ptr, size)

    @pytest.mark.parametrize(
        ("shape", "strides"), [((2, 3), (4, 8)), ((3,), (8,)), ((3,), (-4,)), ((2, 3), (16, 4)), ((2,), (0,))]
    )
    def test_not_contiguous(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        with device.DeviceMemory(64) as memory, pytest.raises(RuntimeError, match="contiguous"):
            tensor_span(Array(memory.ptr, shape, strides=strides))

    def test_masked(self) -> None:
        with device.DeviceMemory(64) as memory, pytest.raises(RuntimeError, match="mask"):
            tensor_span(Array(memory.ptr, (4,), mask=Array(memory.ptr, (4,), "|b1")))

    def test_empty(self) -> None:
        assert tensor_span(Array(0, (0, 4))) == (0, 0, -1, MemoryLocationType.GPU)

    def test_no_memory_of_a_gpu(self) -> None:
        freed = device.DeviceMemory(64 << 20)
        freed.close()
        for ptr in (freed.ptr, ctypes.addressof(ctypes.c_int()), 0):
            with pytest.raises(ValueError, match="not an address in GPU memory"):
                tensor_span(Array(ptr, (4,)))

    def test_closed(self) -> None:
        memory = device.DeviceMemory(64)
        memory.close()
        with pytest.raises(device.BadStateError, match="closed"):
            tensor_span(memory)


class TestView:
    def test_array_interface_of_memory(self) -> None:
        with device.DeviceMemory(4096) as memory:
            interface = memory.__cuda_array_interface__
            assert (interface["shape"], interface["typestr"], interface["data"]) == (
                (4096,),
                "|u1",
                (memory.ptr, False),
            )
            assert interface["strides"] is None

    @pytest.mark.parametrize("number", [0, -1], ids=["first GPU", "last GPU"])
    def test_dlpack(self, number: int) -> None:
        gpu = device.devices()[number]
        content = pattern(48)
        with device.DeviceMemory(64, gpu.device) as memory:
            memory.write(content, offset=16)
            view = gpu_tensor_view(memory.ptr + 16, (3, 4), "float32", gpu.ordinal)
            assert view.__dlpack_device__() == (DEVICE_TYPES[gpu.api], gpu.ordinal)
            capsule = view.__dlpack__()
            address = _gpu_view._capsule_pointer(id(capsule), b"dltensor")
            tensor = _gpu_view._DLManagedTensor.from_address(address).tensor
            assert (tensor.device_type, tensor.device_id) == (DEVICE_TYPES[gpu.api], gpu.ordinal)
            assert (tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset) == (2, 32, 1, 0)
            extents = [tensor.shape[at] for at in range(tensor.ndim)]
            back = bytearray(extents[0] * extents[1] * tensor.bits // 8)
            device.copy(ctypes.addressof(ctypes.c_char.from_buffer(back)), tensor.data, len(back))
            assert back == content

    @pytest.mark.parametrize("framework", ["torch", "jax"])
    def test_memory_that_is_not_the_gpus(self, framework: Any) -> None:
        with pytest.raises(ValueError, match="not an address in GPU memory"):
            from_gpu_ptr(ctypes.addressof(ctypes.c_int()), (1,), "int32", framework)
        with device.DeviceMemory(64) as memory, pytest.raises(ValueError, match="not of GPU 99"):
            from_gpu_ptr(memory.ptr, (1,), "int32", framework, 99)


class TestTorch:
    @pytest.mark.parametrize("number", [0, -1], ids=["first GPU", "last GPU"])
    @pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "int32"])
    def test_from_gpu_ptr(self, name: str, number: int) -> None:
        torch = gpus.need_cuda_torch()
        gpu = device.devices()[number]
        item = getattr(torch, name).itemsize
        with device.DeviceMemory(16 * item, gpu.device) as memory:
            memory.fill(0)
            tensor = from_gpu_ptr(memory.ptr, (4, 4), getattr(torch, name))
            assert (tensor.data_ptr(), tuple(tensor.shape)) == (memory.ptr, (4, 4))
            assert (tensor.device.index, tensor.dtype) == (gpu.ordinal, getattr(torch, name))
            tensor.view(torch.uint8).fill_(7)
            assert memory.read() == b"\7" * 16 * item  # after torch's work, on the default stream

    def test_memory_as_a_tensor(self) -> None:
        torch = gpus.need_cuda_torch()
        memory = device.DeviceMemory(1024)
        tensor = torch.as_tensor(memory, device="cuda:0")
        assert tensor.data_ptr() == memory.ptr
        ptr = memory.ptr
        del memory  # the tensor keeps it
        tensor.fill_(3)
        torch.cuda.synchronize()
        assert device.lookup(ptr).device == 0

    def test_tensor_span(self) -> None:
        torch = gpus.need_cuda_torch()
        tensor = torch.zeros(4, 8, device="cuda:0")
        assert tensor_span(tensor) == (tensor.data_ptr(), 128, 0, MemoryLocationType.GPU)
        with pytest.raises(RuntimeError, match="contiguous"):
            tensor_span(tensor.t())

    def test_dlpack(self) -> None:
        torch = gpus.need_cuda_torch()
        with device.DeviceMemory(64) as memory:
            memory.write(pattern(64))
            tensor = torch.from_dlpack(gpu_tensor_view(memory.ptr, (4, 4), "float32"))
            assert tensor.data_ptr() == memory.ptr
            assert bytes(tensor.cpu().view(torch.uint8).flatten().tolist()) == pattern(64)
            del tensor

    def test_torchs_streams_and_events(self) -> None:
        torch = gpus.need_cuda_torch()
        stream, event = torch.cuda.Stream(), torch.cuda.Event()
        source = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda:0")
        torch.cuda.synchronize()
        with device.DeviceMemory(1 << 20) as memory, device.Stream() as own:
            with torch.cuda.stream(stream):
                source.fill_(9)
            event.record(stream)
            own.wait_event(event)
            device.copy(memory, source.data_ptr(), 1 << 20, own)
            own.wait(30)
            assert memory.read() == b"\x09" * (1 << 20)
            device.copy(source.data_ptr(), memory, 1 << 20, stream)
            done = device.Event()
            done.record(stream)
            done.wait(30)
            done.close()
