# SPDX-License-Identifier: MIT
"""Which calls of an op on a GPU C takes for like the last one; of others Python looks at everything."""

from __future__ import annotations

from typing import Any

import pytest

from mori import _core
from mori._errors import BadStateError
from mori.tensor_utils import GpuTensorView, gpu_tensor_view

NO_OP = 0  # a handle of none: a call that C makes fails


class Tensor:
    """What C asks a tensor of torch on a GPU for."""

    def __init__(self, shape: tuple[int, ...], dtype: object, **other: Any) -> None:
        self.shape, self.dtype, self.is_cuda = shape, dtype, other.get("is_cuda", True)
        self._other = other

    def get_device(self) -> int:
        return int(self._other.get("device", 0))

    def is_contiguous(self) -> bool:
        return bool(self._other.get("contiguous", True))

    def data_ptr(self) -> int:
        return int(self._other.get("ptr", 4096))


class Other(Tensor):
    pass


def view(shape: tuple[int, ...], dtype: str, device: int = 0, ptr: int = 4096) -> GpuTensorView:
    array = gpu_tensor_view(ptr, shape, dtype, 0)
    array.device_id = device
    return array


def is_alike(again: Any, *given: Any, combine: bool = False) -> bool:
    """Tell whether C makes the call, which then fails."""
    try:
        assert again.call(combine, NO_OP, 0, 0, -1, -1, given[0], given[1:]) is None
    except BadStateError:
        return True
    return False


TOKENS = 3
ROWS, IDS = Tensor((3, 8), "bfloat16"), view((3, 2), "int32")
GIVEN = (TOKENS, ROWS, IDS, None, None, None, None)


@pytest.fixture
def again() -> Any:
    return _core.fast().ep_again(GpuTensorView, 0)


def keep(again: Any, *given: Any, combine: bool = False) -> None:
    again.keep(combine, ("results",), 3, 8, 1, 0, given[0], given[1:])


def test_before_any_call_none_is_alike(again: Any) -> None:
    assert not is_alike(again, *GIVEN)


def test_arrays_elsewhere_are_alike(again: Any) -> None:
    keep(again, *GIVEN)
    assert is_alike(again, *GIVEN)
    moved = Tensor((3, 8), "bfloat16", ptr=1 << 40)
    assert is_alike(again, TOKENS, moved, view((3, 2), "int32", ptr=1 << 41), None, None, None, None)


def test_dispatch_and_combine_are_told_apart(again: Any) -> None:
    keep(again, *GIVEN)
    assert not is_alike(again, *GIVEN, combine=True)
    keep(again, *GIVEN, combine=True)
    assert is_alike(again, *GIVEN, combine=True)


@pytest.mark.parametrize(
    "rows",
    [
        Tensor((4, 8), "bfloat16"),
        Tensor((3, 8), "float32"),
        Tensor((3, 8), "bfloat16", is_cuda=False),
        Tensor((3, 8), "bfloat16", device=1),
        Tensor((3, 8), "bfloat16", contiguous=False),
        Tensor((3, 8), "bfloat16", ptr="nowhere"),
        Other((3, 8), "bfloat16"),
        view((3, 8), "bfloat16"),
        None,
        b"",
    ],
)
def test_other_tensors_are_not(again: Any, rows: Any) -> None:
    keep(again, *GIVEN)
    assert not is_alike(again, TOKENS, rows, *GIVEN[2:])
    assert is_alike(again, *GIVEN)


@pytest.mark.parametrize(
    "ids", [view((2, 3), "int32"), view((3, 2), "int64"), view((3, 2), "int32", device=1), Tensor((3, 2), "int32")]
)
def test_other_views_are_not(again: Any, ids: Any) -> None:
    keep(again, *GIVEN)
    assert not is_alike(again, TOKENS, ROWS, ids, *GIVEN[3:])


def test_another_number_of_tokens_or_of_arrays_is_not(again: Any) -> None:
    keep(again, *GIVEN)
    assert not is_alike(again, TOKENS + 1, *GIVEN[1:])
    for i in range(3, 7):
        assert not is_alike(again, *GIVEN[:i], IDS, *GIVEN[i + 1 :])


def test_arrays_of_other_kinds_are_looked_at_each_time(again: Any) -> None:
    class Cupy:
        shape, dtype = (3, 8), "float32"
        __cuda_array_interface__ = None

    keep(again, *GIVEN)
    keep(again, TOKENS, Cupy(), *GIVEN[2:])
    assert not is_alike(again, TOKENS, Cupy(), *GIVEN[2:])
    assert not is_alike(again, *GIVEN), "there is one call that is kept"
