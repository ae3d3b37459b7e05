# SPDX-License-Identifier: MIT
"""Put, get, signals, and the calls that order them.

A symmetric address is given as this PE's address; each call names the PE whose copy it accesses. A
memory argument is an int (an address), a numpy array, a torch tensor on the CPU, or another
contiguous buffer. Arrays have an element type. For bare addresses and raw buffers pass ``dtype``: a
numpy or torch dtype or a name. The local side may be any memory of this process.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from . import _native

Memory: TypeAlias = Any
"""An int (an address), a numpy array, a torch tensor on the CPU, or another contiguous buffer."""

SHMEM_SIGNAL_SET = 9
SHMEM_SIGNAL_ADD = 10

_PUT, _GET, _PUT_NBI, _GET_NBI = range(4)
_FENCE, _QUIET, _BARRIER_ALL, _SYNC_ALL = range(4)
_BYTES = True  # passed in place of a dtype: sizes are in bytes


def shmem_put(dest: Memory, source: Memory, nelems: int | None, pe: int, dtype: Any = None) -> None:
    """Copy ``nelems`` elements of ``source`` to the symmetric ``dest`` of PE ``pe``.

    None means all of ``source``. The caller may reuse ``source`` when this returns. The copy is
    visible at the PE after :func:`shmem_quiet` or a barrier, and before later puts that
    :func:`shmem_fence` orders after it.
    """
    _native.hot.shmem_move(_PUT, dest, source, nelems, pe, dtype)


def shmem_get(dest: Memory, source: Memory, nelems: int | None, pe: int, dtype: Any = None) -> None:
    """Copy ``nelems`` elements of the symmetric ``source`` of PE ``pe`` to ``dest``.

    None means all of ``dest``.
    """
    _native.hot.shmem_move(_GET, dest, source, nelems, pe, dtype)


def shmem_put_nbi(dest: Memory, source: Memory, nelems: int | None, pe: int, dtype: Any = None) -> None:
    """Begin a :func:`shmem_put`; ``source`` must not change before :func:`shmem_quiet`."""
    _native.hot.shmem_move(_PUT_NBI, dest, source, nelems, pe, dtype)


def shmem_get_nbi(dest: Memory, source: Memory, nelems: int | None, pe: int, dtype: Any = None) -> None:
    """Begin a :func:`shmem_get`; ``dest`` is complete after :func:`shmem_quiet`."""
    _native.hot.shmem_move(_GET_NBI, dest, source, nelems, pe, dtype)


def shmem_putmem(dest: Memory, source: Memory, nelems: int | None, pe: int) -> None:
    """Copy ``nelems`` bytes like :func:`shmem_put`, for any element type."""
    _native.hot.shmem_move(_PUT, dest, source, nelems, pe, _BYTES)


def shmem_getmem(dest: Memory, source: Memory, nelems: int | None, pe: int) -> None:
    """Copy ``nelems`` bytes like :func:`shmem_get`, for any element type."""
    _native.hot.shmem_move(_GET, dest, source, nelems, pe, _BYTES)


def shmem_putmem_nbi(dest: Memory, source: Memory, nelems: int | None, pe: int) -> None:
    """Begin a :func:`shmem_putmem`; ``source`` must not change before :func:`shmem_quiet`."""
    _native.hot.shmem_move(_PUT_NBI, dest, source, nelems, pe, _BYTES)


def shmem_getmem_nbi(dest: Memory, source: Memory, nelems: int | None, pe: int) -> None:
    """Begin a :func:`shmem_getmem`; ``dest`` is complete after :func:`shmem_quiet`."""
    _native.hot.shmem_move(_GET_NBI, dest, source, nelems, pe, _BYTES)


def shmem_p(dest: Memory, value: float, pe: int, dtype: Any = None) -> None:
    """Store one number at the symmetric ``dest`` of PE ``pe``."""
    _native.hot.shmem_p(dest, value, pe, dtype)


def shmem_g(source: Memory, pe: int, dtype: Any = None) -> Any:
    """Return the number at the symmetric ``source`` of PE ``pe``."""
    return _native.hot.shmem_g(source, pe, dtype)


def shmem_iput(dest: Memory, source: Memory, dst: int, sst: int, nelems: int, pe: int, dtype: Any = None) -> None:
    """Copy like :func:`shmem_put`, every ``sst``-th element of ``source`` to every ``dst``-th of ``dest``."""
    _native.hot.shmem_strided(_PUT, dest, source, dst, sst, nelems, pe, dtype)


def shmem_iget(dest: Memory, source: Memory, dst: int, sst: int, nelems: int, pe: int, dtype: Any = None) -> None:
    """Copy like :func:`shmem_get`, every ``sst``-th element of ``source`` to every ``dst``-th of ``dest``."""
    _native.hot.shmem_strided(_GET, dest, source, dst, sst, nelems, pe, dtype)


def shmem_put_signal(
    dest: Memory,
    source: Memory,
    nelems: int | None,
    sig_addr: Memory,
    signal: int,
    sig_op: int,
    pe: int,
    dtype: Any = None,
) -> None:
    """Do a :func:`shmem_put`, then update a signal of the same PE.

    Once a reader at the PE sees the signal, it also sees the elements.

    Args:
        sig_addr: a symmetric word of 8 bytes.
        signal: the value to set or add.
        sig_op: SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD.
    """
    _native.hot.shmem_put_signal(_PUT, dest, source, nelems, sig_addr, signal, sig_op, pe, dtype)


def shmem_put_signal_nbi(
    dest: Memory,
    source: Memory,
    nelems: int | None,
    sig_addr: Memory,
    signal: int,
    sig_op: int,
    pe: int,
    dtype: Any = None,
) -> None:
    """Begin a :func:`shmem_put_signal`; ``source`` must not change before :func:`shmem_quiet`."""
    _native.hot.shmem_put_signal(_PUT_NBI, dest, source, nelems, sig_addr, signal, sig_op, pe, dtype)


def shmem_putmem_signal(
    dest: Memory, source: Memory, nelems: int | None, sig_addr: Memory, signal: int, sig_op: int, pe: int
) -> None:
    """Do a :func:`shmem_put_signal` of ``nelems`` bytes, for any element type."""
    _native.hot.shmem_put_signal(_PUT, dest, source, nelems, sig_addr, signal, sig_op, pe, _BYTES)


def shmem_putmem_signal_nbi(
    dest: Memory, source: Memory, nelems: int | None, sig_addr: Memory, signal: int, sig_op: int, pe: int
) -> None:
    """Begin a :func:`shmem_putmem_signal`; ``source`` must not change before :func:`shmem_quiet`."""
    _native.hot.shmem_put_signal(_PUT_NBI, dest, source, nelems, sig_addr, signal, sig_op, pe, _BYTES)


def shmem_fence() -> None:
    """Order this PE's puts: each PE sees earlier puts before later ones. Does not wait."""
    _native.hot.shmem_order(_FENCE)


def shmem_quiet() -> None:
    """Wait until this PE's puts are visible, its gets have arrived and its atomics are done."""
    _native.hot.shmem_order(_QUIET)


def shmem_sync_all() -> None:
    """Wait until all PEs have called this. Collective.

    Unlike :func:`shmem_barrier_all` it completes no transfers.
    """
    _native.hot.shmem_order(_SYNC_ALL)


def shmem_ptr(dest: Memory, pe: int) -> int:
    """Return the address here of PE ``pe``'s copy of ``dest``, or 0 if it is not mapped."""
    at: int = _native.call("ShmemPtr", _native.hot.shmem_address(dest), pe)
    return at
