# SPDX-License-Identifier: MIT
"""Host memory at an address as torch tensors and numpy arrays."""

from __future__ import annotations

import ctypes

import pytest

from mori.tensor_utils import from_host_ptr, numpy_dtype
from support import need_torch

MEMORY = (ctypes.c_uint8 * 64)()
AT = ctypes.addressof(MEMORY)


@pytest.fixture(autouse=True)
def zeroed() -> None:
    ctypes.memset(AT, 0, 64)


@pytest.mark.parametrize("name", ["bool", "uint8", "int16", "float16", "bfloat16", "float32", "int64", "float8_e4m3fn"])
def test_numpy(name: str) -> None:
    array = from_host_ptr(AT, (2, 4), name, "numpy")
    assert (array.shape, array.dtype.name, array.ctypes.data) == ((2, 4), name, AT)
    array[1, 3] = 1
    assert array.tobytes() == bytes(MEMORY[: array.nbytes])
    assert any(MEMORY[: array.nbytes])
    assert array.dtype == numpy_dtype(array.dtype)


@pytest.mark.parametrize("name", ["bool", "uint8", "int16", "float16", "bfloat16", "float32", "int64", "float8_e4m3fn"])
def test_torch(name: str) -> None:
    need_torch()
    import torch

    tensor = from_host_ptr(AT, (2, 4), getattr(torch, name))
    assert (tuple(tensor.shape), tensor.dtype, tensor.data_ptr()) == ((2, 4), getattr(torch, name), AT)
    tensor.view(torch.uint8).fill_(3)
    assert set(MEMORY[: tensor.nbytes]) == {3}


def test_scalars_and_nothing() -> None:
    assert from_host_ptr(AT, (), "int32", "numpy").shape == ()
    assert from_host_ptr(AT, (0, 3), "int32", "numpy").shape == (0, 3)
    assert from_host_ptr(0, (3, 0), "int32", "numpy").size == 0


@pytest.mark.parametrize(
    ("ptr", "shape", "dtype", "framework", "said"),
    [
        pytest.param(AT, (2,), "float32", "jax", "unknown framework 'jax'", id="framework"),
        pytest.param(AT, (2,), "int3", "numpy", "unsupported dtype", id="int3"),
        pytest.param(AT, (2,), "float4_e2m1fn_x2", "numpy", "unsupported dtype", id="float4_e2m1fn_x2"),
        pytest.param(AT, (-2,), "float32", "numpy", "not an array", id="negative"),
        pytest.param(0, (2,), "float32", "numpy", "not an array", id="null"),
        pytest.param(-8, (2,), "float32", "numpy", "not an array", id="minus eight"),
    ],
)
def test_what_is_refused(ptr: int, shape: tuple[int, ...], dtype: str, framework: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_host_ptr(ptr, shape, dtype, framework)  # type: ignore[arg-type]
