# SPDX-License-Identifier: MIT
"""Atomics on words of 4 and 8 bytes of another PE.

``dest`` is a symmetric array or tensor, of which the first element is meant, or an address with a ``dtype``: int32,
uint32, int64 or uint64; fetch, set and swap also take float32 and float64. Values wrap as the machine's do. Atomics
of one size are atomic towards each other, and towards nothing else.
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
    """Store ``value`` if the word is ``cond``; return what it was."""
    old: int = _native.hot.shmem_atomic(_COMPARE_SWAP, dest, value, cond, pe, dtype)
    return old


def shmem_atomic_swap(dest: Memory, value: float, pe: int, dtype: Any = None) -> Any:
    """Store ``value`` and return what the word was."""
    return _native.hot.shmem_atomic(_SWAP, dest, value, None, pe, dtype)


def shmem_atomic_fetch_inc(dest: Memory, pe: int, dtype: Any = None) -> int:
    """Add 1 and return what the word was."""
    old: int = _native.hot.shmem_atomic(_FETCH_INC, dest, None, None, pe, dtype)
    return old


def shmem_atomic_inc(dest: Memory, pe: int, dtype: Any = None) -> None:
    """Add 1."""
    _native.hot.shmem_atomic(_INC, dest, None, None, pe, dtype)


def shmem_atomic_fetch_add(dest: Memory, value: int, pe: int, dtype: Any = None) -> int:
    """Add ``value`` and return what the word was."""
    old: int = _native.hot.shmem_atomic(_FETCH_ADD, dest, value, None, pe, dtype)
    return old


def shmem_atomic_add(dest: Memory, value: int, pe: int, dtype: Any = None) -> None:
    """Add ``value``."""
    _native.hot.shmem_atomic(_ADD, dest, value, None, pe, dtype)


def shmem_atomic_fetch_and(dest: Memory, value: int, pe: int, dtype: Any = None) -> int:
    """Keep the bits that are in ``value``, and return what the word was."""
    old: int = _native.hot.shmem_atomic(_FETCH_AND, dest, value, None, pe, dtype)
    return old


def shmem_atomic_and(dest: Memory, value: int, pe: int, dtype: Any = None) -> None:
    """Keep the bits that are in ``value``."""
    _native.hot.shmem_atomic(_AND, dest, value, None, pe, dtype)


def shmem_atomic_fetch_or(dest: Memory, value: int, pe: int, dtype: Any = None) -> int:
    """Set the bits that are in ``value``, and return what the word was."""
    old: int = _native.hot.shmem_atomic(_FETCH_OR, dest, value, None, pe, dtype)
    return old


def shmem_atomic_or(dest: Memory, value: int, pe: int, dtype: Any = None) -> None:
    """Set the bits that are in ``value``."""
    _native.hot.shmem_atomic(_OR, dest, value, None, pe, dtype)


def shmem_atomic_fetch_xor(dest: Memory, value: int, pe: int, dtype: Any = None) -> int:
    """Flip the bits that are in ``value``, and return what the word was."""
    old: int = _native.hot.shmem_atomic(_FETCH_XOR, dest, value, None, pe, dtype)
    return old


def shmem_atomic_xor(dest: Memory, value: int, pe: int, dtype: Any = None) -> None:
    """Flip the bits that are in ``value``."""
    _native.hot.shmem_atomic(_XOR, dest, value, None, pe, dtype)
