# SPDX-License-Identifier: MIT
"""Waiting for what other PEs store into this one's symmetric memory.

``ivars`` is a symmetric array of integers, or an address with a ``dtype``. ``cmp`` is one of SHMEM_CMP_EQ, NE, GT, GE,
LT, LE: the element stands on the left. Where there are several elements, ``status`` says which to leave out: those that
are true in it; None means none. ``_vector`` functions compare each element with a value of its own.

A wait ends when the condition holds, when a PE dies (PEFailedError), after ``MORI_SHMEM_TIMEOUT`` seconds
(MoriTimeoutError), or by Ctrl-C. PEs of the same host wake who waits; what comes from other hosts, or by plain stores,
is noticed within a millisecond or ten.
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
    """Wait until ``ivar``, the first element of an array, compares so."""
    _native.hot.shmem_wait(_ONE, ivar, 1, None, cmp, cmp_value, dtype)


def shmem_wait_until_all(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> None:
    """Wait until all elements compare so."""
    _native.hot.shmem_wait(_ALL, ivars, nelems, status, cmp, cmp_value, dtype)


def shmem_wait_until_any(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> int | None:
    """Wait until an element compares so, and return its index; None if all are left out."""
    index: int | None = _native.hot.shmem_wait(_ANY, ivars, nelems, status, cmp, cmp_value, dtype)
    return index


def shmem_wait_until_some(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> list[int]:
    """Wait until an element compares so, and return the indices of all that do."""
    indices: list[int] = _native.hot.shmem_wait(_SOME, ivars, nelems, status, cmp, cmp_value, dtype)
    return indices


def shmem_wait_until_all_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> None:
    """Wait until each element compares so with its value."""
    _native.hot.shmem_wait(_ALL | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)


def shmem_wait_until_any_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> int | None:
    """Wait until an element compares so with its value, and return its index; None if all are left out."""
    index: int | None = _native.hot.shmem_wait(_ANY | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return index


def shmem_wait_until_some_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> list[int]:
    """Wait until an element compares so with its value, and return the indices of all that do."""
    indices: list[int] = _native.hot.shmem_wait(_SOME | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return indices


def shmem_test(ivar: Memory, cmp: int, cmp_value: int, dtype: Any = None) -> bool:
    """Tell whether ``ivar``, the first element of an array, compares so now."""
    met: bool = _native.hot.shmem_wait(_ONE | _TEST, ivar, 1, None, cmp, cmp_value, dtype)
    return met


def shmem_test_all(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> bool:
    """Tell whether all elements compare so now."""
    met: bool = _native.hot.shmem_wait(_ALL | _TEST, ivars, nelems, status, cmp, cmp_value, dtype)
    return met


def shmem_test_any(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> int | None:
    """Return the index of an element that compares so now, or None."""
    index: int | None = _native.hot.shmem_wait(_ANY | _TEST, ivars, nelems, status, cmp, cmp_value, dtype)
    return index


def shmem_test_some(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_value: int, dtype: Any = None
) -> list[int]:
    """Return the indices of the elements that compare so now."""
    indices: list[int] = _native.hot.shmem_wait(_SOME | _TEST, ivars, nelems, status, cmp, cmp_value, dtype)
    return indices


def shmem_test_all_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> bool:
    """Tell whether each element compares so with its value now."""
    met: bool = _native.hot.shmem_wait(_ALL | _TEST | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return met


def shmem_test_any_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> int | None:
    """Return the index of an element that compares so with its value now, or None."""
    index: int | None = _native.hot.shmem_wait(_ANY | _TEST | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return index


def shmem_test_some_vector(
    ivars: Memory, nelems: int, status: Sequence[Any] | None, cmp: int, cmp_values: Sequence[int], dtype: Any = None
) -> list[int]:
    """Return the indices of the elements that compare so with their values now."""
    indices: list[int] = _native.hot.shmem_wait(_SOME | _TEST | _VECTOR, ivars, nelems, status, cmp, cmp_values, dtype)
    return indices


def shmem_signal_fetch(sig_addr: Memory) -> int:
    """Return this PE's signal, a symmetric word of 8 bytes."""
    value: int = _native.hot.shmem_signal_fetch(sig_addr)
    return value


def shmem_signal_wait_until(sig_addr: Memory, cmp: int, cmp_value: int) -> int:
    """Wait until this PE's signal compares so, and return what it was then."""
    value: int = _native.hot.shmem_signal_wait_until(sig_addr, cmp, cmp_value)
    return value
