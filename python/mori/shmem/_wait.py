# SPDX-License-Identifier: MIT
"""Waiting for stores of other PEs to this PE's symmetric memory.

``ivars`` is a symmetric array of integers, or an address with a ``dtype``. ``cmp`` is one of
SHMEM_CMP_EQ, NE, GT, GE, LT, LE, with the element on the left. With several elements, those whose
entry in ``status`` is true are excluded; None excludes none. ``_vector`` functions compare each
element with its own value.

A wait ends when the condition holds, when a PE dies (PEFailedError), after ``MORI_SHMEM_TIMEOUT``
seconds (MoriTimeoutError), or on Ctrl-C. Calls of PEs on the same host wake the waiter. Plain
stores and writes from other hosts are noticed within 1 to 10 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _native
from ._rma import Memory

SHMEM_CMP_EQ = 1
SHMEM_CMP_NE = 2
SHMEM_CMP_GT = 3
SHMEM_CMP_GE = 4
SHMEM_CMP_LT = 5
SHMEM_CMP_LE = 6

_ONE, _ALL, _ANY, _SOME = range(4)
_TEST, _VECTOR = 4, 8


def shmem_wait_until(ivar: Memory, cmp: int, cmp_value: int, dtype: Any = None) -> None:
    """Wait until the comparison holds for ``ivar``, the first element of an array."""
    _native.hot.shmem_wait(_ONE, ivar, 1, None, cmp, cmp_value, dtype)


def shmem_wait_until_all(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> None:
    """Wait until the comparison holds for all elements."""
    _native.hot.shmem_wait(_ALL, ivars, nelems, status, cmp, cmp_value, dtype)


def shmem_wait_until_any(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> int | None:
    """Wait until the comparison holds for an element; return its index.

    Returns None if all elements are excluded.
    """
    index: int | None = _native.hot.shmem_wait(_ANY, ivars, nelems, status, cmp, cmp_value, dtype)
    return index


def shmem_wait_until_some(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> list[int]:
    """Wait until the comparison holds for an element; return the indices of all that fulfil it."""
    indices: list[int] = _native.hot.shmem_wait(_SOME, ivars, nelems, status, cmp, cmp_value, dtype)
    return indices


def shmem_wait_until_all_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> None:
    """Wait until the comparison holds for each element with its value."""
    _native.hot.shmem_wait(_ALL | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)


def shmem_wait_until_any_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> int | None:
    """Wait until the comparison holds for an element with its value, and return its index.

    Returns None if all elements are excluded.
    """
    index: int | None = _native.hot.shmem_wait(_ANY | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return index


def shmem_wait_until_some_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> list[int]:
    """Wait until the comparison holds for an element with its value; return all such indices."""
    indices: list[int] = _native.hot.shmem_wait(_SOME | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return indices


def shmem_test(ivar: Memory, cmp: int, cmp_value: int, dtype: Any = None) -> bool:
    """Report whether the comparison holds now for ``ivar``, the first element of an array."""
    met: bool = _native.hot.shmem_wait(_ONE | _TEST, ivar, 1, None, cmp, cmp_value, dtype)
    return met


def shmem_test_all(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> bool:
    """Report whether the comparison holds now for all elements."""
    met: bool = _native.hot.shmem_wait(_ALL | _TEST, ivars, nelems, status, cmp, cmp_value, dtype)
    return met


def shmem_test_any(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> int | None:
    """Return the index of an element for which the comparison holds now, or None."""
    index: int | None = _native.hot.shmem_wait(_ANY | _TEST, ivars, nelems, status, cmp, cmp_value, dtype)
    return index


def shmem_test_some(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> list[int]:
    """Return the indices of the elements for which the comparison holds now."""
    indices: list[int] = _native.hot.shmem_wait(_SOME | _TEST, ivars, nelems, status, cmp, cmp_value, dtype)
    return indices


def shmem_test_all_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> bool:
    """Report whether the comparison holds now for each element with its value."""
    met: bool = _native.hot.shmem_wait(_ALL | _TEST | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return met


def shmem_test_any_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> int | None:
    """Return the index of an element for which the comparison with its value holds now, or None."""
    index: int | None = _native.hot.shmem_wait(_ANY | _TEST | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return index


def shmem_test_some_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> list[int]:
    """Return the indices of the elements for which the comparison with their value holds now."""
    indices: list[int] = _native.hot.shmem_wait(_SOME | _TEST | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return indices


def shmem_signal_fetch(sig_addr: Memory) -> int:
    """Return the value of this PE's signal, a symmetric word of 8 bytes."""
    value: int = _native.hot.shmem_signal_fetch(sig_addr)
    return value


def shmem_signal_wait_until(sig_addr: Memory, cmp: int, cmp_value: int) -> int:
    """Wait until the comparison holds for this PE's signal, and return the signal's value."""
    value: int = _native.hot.shmem_signal_wait_until(sig_addr, cmp, cmp_value)
    return value
