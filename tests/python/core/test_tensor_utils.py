# SPDX-License-Identifier: MIT
"""Addresses of tensors and buffers, and views over addresses."""

from __future__ import annotations

import ctypes
import gc
import mmap
from array import array

import pytest

from mori import _gpu_view
from mori.io import MemoryLocationType
from mori.tensor_utils import (
    GpuTensorView,
    Span,
    buffer_span,
    dtype_name,
    dtype_size,
    dtype_to_int,
    from_gpu_ptr,
    gpu_tensor_view,
    tensor_span,
)
from support import need_torch


class TestDtypes:
    @pytest.mark.parametrize(
        ("name", "number"),
        [
            ("float32", 0),
            ("bfloat16", 1),
            ("float8_e4m3fn", 2),
            ("float8_e4m3fnuz", 3),
            ("int32", 4),
            ("float4_e2m1fn_x2", 5),
        ],
    )
    def test_numbers(self, name: str, number: int) -> None:
        assert dtype_to_int(name) == dtype_to_int(f"torch.{name}") == number

    @pytest.mark.parametrize("name", ["float64", "uint7", ""])
    def test_unsupported(self, name: str) -> None:
        with pytest.raises(ValueError, match="supported"):
            dtype_to_int(name)

    def test_names_and_sizes(self) -> None:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        for dtype in (np.float32, np.dtype("float32"), "float32", "torch.float32"):
            assert dtype_name(dtype) == "float32"
            assert dtype_size(dtype) == 4

    @pytest.mark.parametrize(
        ("name", "size"), [("bfloat16", 2), ("float8_e4m3fn", 1), ("int64", 8), ("complex128", 16)]
    )
    def test_sizes(self, name: str, size: int) -> None:
        assert dtype_size(name) == size

    def test_torch(self) -> None:
        need_torch()
        import torch

        assert dtype_to_int(torch.bfloat16) == 1
        assert dtype_size(torch.float16) == 2


class TestBufferSpan:
    @pytest.mark.parametrize(
        "buffer", [bytearray(b"content!"), b"content!", array("B", b"content!"), memoryview(b"content!")]
    )
    def test_points_at_the_bytes(self, buffer: bytes) -> None:
        span = buffer_span(buffer)
        assert span == Span(span.ptr, 8, -1, MemoryLocationType.CPU)
        assert ctypes.string_at(span.ptr, span.size) == b"content!"

    def test_part_of_a_buffer(self) -> None:
        buffer = bytearray(100)
        assert buffer_span(memoryview(buffer)[30:50]) == (buffer_span(buffer).ptr + 30, 20, -1, MemoryLocationType.CPU)

    def test_mmap(self) -> None:
        with mmap.mmap(-1, 4096) as buffer:
            span = buffer_span(buffer)
            assert (span.size, span.ptr % mmap.PAGESIZE) == (4096, 0)

    def test_does_not_hold_the_buffer(self) -> None:
        buffer = bytearray(16)
        buffer_span(buffer)
        buffer.extend(b"resizable")

    def test_numpy(self) -> None:
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        values = np.arange(12, dtype=np.int32).reshape(3, 4)
        assert buffer_span(values)[:2] == (values.ctypes.data, 48)
        with pytest.raises(ValueError, match="contiguous"):
            buffer_span(values.T)

    @pytest.mark.parametrize("wrong", [None, 5, "text", [1, 2]])
    def test_no_buffer(self, wrong: object) -> None:
        with pytest.raises(TypeError):
            buffer_span(wrong)


def test_tensor_span() -> None:
    need_torch()
    import torch

    tensor = torch.zeros(4, 8)
    assert tensor_span(tensor) == (tensor.data_ptr(), 128, -1, MemoryLocationType.CPU)
    with pytest.raises(RuntimeError, match="contiguous"):
        tensor_span(tensor.t())
    with pytest.raises(KeyError, match="'meta'"):
        tensor_span(torch.zeros(4, device="meta"))


@pytest.mark.parametrize(
    ("wrong", "hint"), [(None, "NoneType"), ([1, 2], "list"), (5, "int"), (bytearray(4), "buffer_span takes it")]
)
def test_tensor_span_of_other_objects(wrong: object, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        tensor_span(wrong)


class TestGpuView:
    @pytest.mark.parametrize(
        ("dtype", "shape", "typestr", "seen"),
        [
            ("float32", (2, 3), "<f4", (2, 3)),
            ("int64", (5,), "<i8", (5,)),
            ("uint8", (5,), "|u1", (5,)),
            ("float16", (), "<f2", ()),
            ("bfloat16", (2, 3), "|u1", (2, 6)),
            ("float8_e4m3fn", (7,), "|u1", (7,)),
            ("bfloat16", (), "|u1", (2,)),
        ],
    )
    def test_array_interface(self, dtype: str, shape: tuple[int, ...], typestr: str, seen: tuple[int, ...]) -> None:
        view = gpu_tensor_view(0x7000_0000, shape, dtype, 3)
        assert isinstance(view, GpuTensorView)
        interface = view.__cuda_array_interface__
        assert interface == {
            "shape": seen,
            "typestr": typestr,
            "data": (0x7000_0000, False),
            "strides": None,
            "version": 2,
        }

    def test_attributes(self) -> None:
        view = gpu_tensor_view(4096, [2, 3], "torch.bfloat16", device_id=1)
        assert (view.ptr, view.shape, view.dtype, view.device_id, view.nbytes) == (4096, (2, 3), "bfloat16", 1, 12)
        assert "bfloat16" in repr(view)

    def test_dlpack_structure(self) -> None:
        view = gpu_tensor_view(0x1234000, (2, 3), "float32", 5)
        capsule = view.__dlpack__(stream=1)
        assert view.__dlpack_device__()[1] == 5
        address = _gpu_view._capsule_pointer(id(capsule), b"dltensor")
        managed = _gpu_view._DLManagedTensor.from_address(address)
        tensor = managed.tensor
        assert (tensor.data, tensor.device_id, tensor.ndim) == (0x1234000, 5, 2)
        assert (tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset) == (2, 32, 1, 0)
        assert [tensor.shape[0], tensor.shape[1]] == [2, 3]
        assert not tensor.strides
        assert address in _gpu_view._exported
        managed.deleter(ctypes.pointer(managed))
        assert address not in _gpu_view._exported

    def test_dlpack_without_a_consumer(self) -> None:
        before = len(_gpu_view._exported)
        capsules = [gpu_tensor_view(4096, (n,), "int32").__dlpack__() for n in range(10)]
        assert len(_gpu_view._exported) == before + 10
        del capsules
        gc.collect()
        assert len(_gpu_view._exported) == before

    @pytest.mark.parametrize(("ptr", "shape"), [(0, (1,)), (-1, (1,)), (4096, (-1,))])
    def test_impossible(self, ptr: int, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="ptr"):
            gpu_tensor_view(ptr, shape, "int32")

    def test_unknown_framework(self) -> None:
        with pytest.raises(ValueError, match="torch"):
            from_gpu_ptr(4096, (1,), "int32", framework="tensorflow")
