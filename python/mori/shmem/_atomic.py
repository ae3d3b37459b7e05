# SPDX-License-Identifier: MIT
"""Atomics on 4- and 8-byte words of another PE.

``dest`` is a symmetric array or tensor, whose first element is used, or an address with a
``dtype``. The type is int32, uint32, int64 or uint64; fetch, set and swap also take float32 and
float64. Integers wrap on overflow. Atomics are atomic only with respect to atomics of the same
size.
"""

from __future__ import annotations

from typing import Any

from . import _native
from ._rma import Memory

_INC, _SET, _ADD, _AND, _OR, _XOR = range(2, 8)
_FETCH, _FETCH_INC, _FETCH_ADD, _FETCH_AND, _FETCH_OR, _FETCH_XOR, _SWAP, _COMPARE_SWAP = range(12, 20)


def shmem_atomic_fetch(source: Memory, pe: int, dtype: Any = None) -> Any:
    """Return the word."""
    return _native.hot.shmem_atomic(_FETCH, source, None, None, pe, dtype)


def shmem_atomic_set(dest: Memory, value: float, pe: int, dtype: Any = None) -> None:
    """Store ``value``."""
    _native.hot.shmem_atomic(_SET, dest, value, None, pe, dtype)


def shmem_atomic_compare_swap(dest: Memory, cond: int, value: int, pe: int, dtype: Any = None) -> int:
    """Store ``value`` if the word equals ``cond``; return the old value."""
    old: int = _native.hot.shmem_atomic(_COMPARE_SWAP, dest, value, cond, pe, dtype)
    return old


def shmem_atomic_swap(dest: Memory, value: float, pe: int, dtype: Any = None) -> Any:
    """Store ``value`` and return the old value."""
    return _native.hot.shmem_atomic(_SWAP, dest, value, None, pe, dtype)


def shmem_atomic_fetch_inc(dest: Memory, pe: int, dtype: Any = None) -> int:
    """Add 1 and return the old value."""
    old: int = _native.hot.shmem_atomic(_FETCH_INC, dest, None, None, pe, dtype)
    return old


def shmem_atomic_inc(dest: Memory, pe: int, dtype: Any = None) -> None:
    """Add 1."""
    _native.hot.shmem_atomic(_INC, dest, None, None, pe, dtype)


def shmem_atomic_fetch_add(dest: Memory, value: int, pe: int, dtype: Any = None) -> int:
    """Add ``value`` and return the old value."""
    old: int = _native.hot.shmem_atomic(_FETCH_ADD, dest, value, None, pe, dtype)
    return old


def shmem_atomic_add(dest: Memory, value: int, pe: int, dtype: Any = None) -> None:
    """Add ``value``."""
    _native.hot.shmem_atomic(_ADD, dest, value, None, pe, dtype)


def shmem_atomic_fetch_and(dest: Memory, value: int, pe: int, dtype: Any = None) -> int:
    """AND the word with ``value`` and return its old value."""
    old: int = _native.hot.shmem_atomic(_FETCH_AND, dest, value, None, pe, dtype)
    return old


def shmem_atomic_and(dest: Memory, value: int, pe: int, dtype: Any = None) -> None:
    """AND the word with ``value``."""
    _native.hot.shmem_atomic(_AND, dest, value, None, pe, dtype)


def shmem_atomic_fetch_or(dest: Memory, value: int, pe: int, dtype: Any = None) -> int:
    """OR the word with ``value`` and return its old value."""
    old: int = _native.hot.shmem_atomic(_FETCH_OR, dest, value, None, pe, dtype)
    return old


def shmem_atomic_or(dest: Memory, value: int, pe: int, dtype: Any = None) -> None:
    """OR the word with ``value``."""
    _native.hot.shmem_atomic(_OR, dest, value, None, pe, dtype)


def shmem_atomic_fetch_xor(dest: Memory, value: int, pe: int, dtype: Any = None) -> int:
    """XOR the word with ``value`` and return its old value."""
    old: int = _native.hot.shmem_atomic(_FETCH_XOR, dest, value, None, pe, dtype)
    return old


def shmem_atomic_xor(dest: Memory, value: int, pe: int, dtype: Any = None) -> None:
    """XOR the word with ``value``."""
    _native.hot.shmem_atomic(_XOR, dest, value, None, pe, dtype)
