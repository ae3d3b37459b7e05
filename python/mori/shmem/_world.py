# SPDX-License-Identifier: MIT
"""Becoming a PE and ceasing to be one, symmetric memory, and what there is to ask."""

from __future__ import annotations

import json
import operator
import os
from typing import Any

from .. import _core
from .._errors import (
    BadStateError,
    ConnectionFailedError,
    ForkError,
    InvalidArgumentError,
    MoriError,
    MoriTimeoutError,
)
from . import _native

MORI_SHMEM_INIT_WITH_MPI_COMM = 0
MORI_SHMEM_INIT_WITH_UNIQUEID = 1

UNIQUE_ID_SIZE = 128

# What a call that answers with 0 or -1 still raises: the caller cannot go on as if nothing had happened.
_RAISED = (BadStateError, ConnectionFailedError, ForkError, MoriTimeoutError)


def _log(act: str, err: object) -> None:
    _core.call("ShmemLog", f"{act}: {err}")


def _size(value: Any, what: str) -> int:
    """Return value as an int of 64 bits; the native side does not check ranges."""
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise InvalidArgumentError(f"{what} must be from 0 to 2**64-1, got {number}")
    return number


def shmem_get_unique_id() -> bytes:
    """Return a new id, 128 bytes, which the caller hands to all ranks for :func:`shmem_init_attr`.

    One rank calls this, before init. Any process with the id can join: send it where strangers cannot read.
    The process that is rank 0 listens at the address in it: call this on rank 0's host. ``MORI_SOCKET_IFNAME`` chooses
    the network interface.
    """
    return bytes.fromhex(_core.call("ShmemUniqueID"))


def shmem_init_attr(flags: int, rank: int, nranks: int, unique_id: bytes) -> int:
    """Become PE ``rank`` of ``nranks``, together with all processes that have the same id. Collective.

    Args:
        flags: MORI_SHMEM_INIT_WITH_UNIQUEID; of a communicator see :func:`shmem_mpi_init`.
        rank: this process's number, 0 to nranks - 1.
        nranks: how many there are.
        unique_id: of :func:`shmem_get_unique_id`.

    Returns:
        0, also if this process is a PE already; -1 with a line in the log if it did not work: a wrong argument, or
        ranks that have not come within ``MORI_BOOTSTRAP_TIMEOUT`` seconds (300).

    Raises:
        RuntimeError: the id is not 128 bytes long.
    """
    if not isinstance(unique_id, bytes | bytearray | memoryview):
        raise TypeError(f"unique_id must be bytes, got {unique_id!r}")
    unique_id = bytes(unique_id)
    if len(unique_id) != UNIQUE_ID_SIZE:
        raise InvalidArgumentError(f"unique_id has {len(unique_id)} bytes, want {UNIQUE_ID_SIZE}")
    try:
        init_by_id(flags, rank, nranks, unique_id)
    except ForkError:
        raise
    except MoriError as err:
        _log("shmem_init_attr", err)
        return -1
    return 0


def init_by_id(flags: int, rank: int, nranks: int, unique_id: bytes) -> None:
    """Do what :func:`shmem_init_attr` does, and raise what went wrong."""
    flags, rank, nranks = operator.index(flags), operator.index(rank), operator.index(nranks)
    if initialized():
        return
    if flags == MORI_SHMEM_INIT_WITH_MPI_COMM:
        raise InvalidArgumentError("flags 0 means an MPI communicator: use shmem_mpi_init()")
    if flags != MORI_SHMEM_INIT_WITH_UNIQUEID:
        raise InvalidArgumentError(f"flags must be {MORI_SHMEM_INIT_WITH_UNIQUEID} (by unique id), got {flags}")
    if not 0 <= rank < nranks < 2**31:
        raise InvalidArgumentError(f"rank {rank} of {nranks}: want 0 <= rank < nranks")
    _native.initialise("ShmemInitUniqueID", unique_id.hex(), rank, nranks)


def initialized() -> bool:
    """Tell whether this process is a PE."""
    return _core.loaded() and bool(_core.call("ShmemInitialized"))


def shmem_finalize() -> int:
    """Wait for all PEs, then free all symmetric memory. Collective. Afterwards init may be called again.

    Tensors and addresses of symmetric memory must not be used any more. Without an init there is nothing to do.

    Returns:
        0. If other PEs did not come, -1 with a line in the log; this one is finalized all the same.
    """
    if not initialized():
        return 0
    try:
        _native.run("ShmemFinalize")
    except ForkError:
        raise
    except MoriError as err:
        _log("shmem_finalize", err)
        return -1
    return 0


def shmem_module_init(hip_module: int) -> int:
    """Connect a GPU module of the caller's, or Triton's, to the PEs and their memory: its kernels may use them then.

    It may be repeated. ``shmem_finalize`` withdraws it, and the next init of the same process repeats it.

    Args:
        hip_module: a CUmodule or hipModule_t, as a number, on the GPU that the symmetric heap is on.

    Returns:
        0; -1 with a line in the log if the module has no kernels that use symmetric memory (no ``mori_shmem_state``),
        or if the heap is in host memory.

    Raises:
        RuntimeError: before init.
    """
    module = _size(hip_module, "hip_module")
    try:
        known = _native.call("ShmemModuleInit", module)
    except _RAISED:
        raise
    except MoriError as err:
        _log("shmem_module_init", err)
        return -1
    if not known:
        _log("shmem_module_init", f"module {module:#x} has no symbol mori_shmem_state")
        return -1
    return 0


def load_shmem_module(hsaco_path: str) -> int:
    """Load a file of GPU code, PTX or a code object, and do :func:`shmem_module_init` on it. It stays loaded.

    Returns:
        0, or -1 with a line in the log.
    """
    try:
        _native.call("ShmemLoadModule", os.fspath(hsaco_path))
    except _RAISED:
        raise
    except MoriError as err:
        _log(f"load_shmem_module {hsaco_path!r}", err)
        return -1
    return 0


def shmem_mype() -> int:
    """Return this process's number, from 0 to ``shmem_npes() - 1``."""
    pe: int = _native.call("ShmemMyPE")
    return pe


def shmem_npes() -> int:
    """Return how many PEs there are."""
    npes: int = _native.call("ShmemNPEs")
    return npes


def shmem_num_qp_per_pe() -> int:
    """Return how many queue pairs each pair of PEs has over RDMA: ``MORI_NUM_QP_PER_PE`` at init, 4 by default."""
    qps: int = _native.call("ShmemNumQPPerPE")
    return qps


def shmem_describe() -> dict[str, Any]:
    """Return what there is: mode, the heap's size and use, allocations, and how each PE is reached and why so."""
    described: dict[str, Any] = json.loads(_native.call("ShmemDescribe"))
    return described


def _allocate(act: str, name: str, *args: int) -> int:
    try:
        return _native.collective(name, *args)
    except _RAISED:
        raise
    except MoriError as err:
        _log(act, err)
        return 0


def shmem_malloc(size: int) -> int:
    """Allocate ``size`` bytes of symmetric memory on every PE. Collective: all PEs ask for the same, in the same order.

    The memory begins at a multiple of 256, and is zero unless it was used before.

    Returns:
        Its address on this PE; 0 if size is 0, or on failure, with a line in the log: no room, or PEs that asked for
        different sizes.

    Raises:
        RuntimeError: before init; a PE died (:class:`mori.shmem.PEFailedError`) or did not come in time.
    """
    return _allocate(f"shmem_malloc({size})", "ShmemMalloc", _size(size, "size"))


def shmem_malloc_align(alignment: int, size: int) -> int:
    """Allocate like :func:`shmem_malloc`, at a multiple of ``alignment``, a power of two."""
    act = f"shmem_malloc_align({alignment}, {size})"
    return _allocate(act, "ShmemMallocAlign", _size(alignment, "alignment"), _size(size, "size"))


def shmem_calloc(count: int, size: int) -> int:
    """Allocate ``count`` elements of ``size`` bytes like :func:`shmem_malloc`, all zero."""
    return _allocate(f"shmem_calloc({count}, {size})", "ShmemCalloc", _size(count, "count"), _size(size, "size"))


def shmem_ext_malloc_with_flags(size: int, flags: int) -> int:
    """Allocate like :func:`shmem_malloc`; ``flags`` are those of hipExtMalloc, and make no difference here."""
    operator.index(flags)
    return _allocate(f"shmem_ext_malloc_with_flags({size}, {flags})", "ShmemMalloc", _size(size, "size"))


def shmem_free(ptr: int) -> None:
    """Free what :func:`shmem_malloc` returned. Collective. 0 does nothing; another address gets a line in the log."""
    try:
        _native.collective("ShmemFree", _size(ptr, "ptr"))
    except _RAISED:
        raise
    except MoriError as err:
        _log(f"shmem_free({ptr:#x})", err)


def shmem_buffer_register(ptr: int, size: int) -> int:
    """Make ordinary memory of this process known as source and destination of transfers. It stays the caller's.

    On host memory every address of the process may be one anyway; registered memory is faster over RDMA.

    Returns:
        0, or -1 with a line in the log.
    """
    return _buffer(f"shmem_buffer_register({ptr:#x}, {size})", "ShmemRegister", ptr, size)


def shmem_buffer_deregister(ptr: int, size: int) -> int:
    """Take :func:`shmem_buffer_register` back."""
    return _buffer(f"shmem_buffer_deregister({ptr:#x}, {size})", "ShmemDeregister", ptr, size)


def _buffer(act: str, name: str, ptr: int, size: int) -> int:
    try:
        _native.collective(name, _size(ptr, "ptr"), _size(size, "size"))
    except _RAISED:
        raise
    except MoriError as err:
        _log(act, err)
        return -1
    return 0


def shmem_ptr_p2p(dest_ptr: int, my_pe: int, dest_pe: int) -> int:
    """Return the address in this process at which PE ``dest_pe``'s copy of ``dest_ptr`` can be loaded and stored.

    ``dest_ptr`` is an address of this PE's symmetric memory, and ``my_pe`` this PE. The same PE gives the same address;
    0 means that the PE's memory is not mapped here (it is on another host, or the GPUs do not reach each other), that
    there is no such PE, or that the address is not symmetric. With the heap on GPUs it is an address for kernels.
    """
    address, mine, other = _size(dest_ptr, "dest_ptr"), operator.index(my_pe), operator.index(dest_pe)
    here = shmem_mype()
    if mine == other:
        return address
    if mine != here or not 0 <= other < shmem_npes():
        return 0
    at: int = _native.call("ShmemPtr", address, other)
    return at


def shmem_barrier_all() -> None:
    """Wait until all PEs have come here, and all that they put before is visible to all. Collective.

    Raises:
        PEFailedError: a PE died; its number is in ``pe``.
        MoriTimeoutError: a PE has not come within ``MORI_SHMEM_TIMEOUT`` seconds.
    """
    _native.hot.shmem_order(2)


def shmem_barrier_on_stream(stream: Any = None) -> None:
    """Put a barrier of all PEs into a stream of the GPU that the heap is on. It does not wait. Collective.

    What precedes it on each PE's stream, and what each PE has put by calls before, is visible to what follows it on the
    streams of all. A kernel that waits longer than ``MORI_SHMEM_TIMEOUT`` for a PE ends, and the next call here raises.

    Args:
        stream: None or 0, the default stream; a cudaStream_t or hipStream_t as an int; or what has a ``cuda_stream``.

    Raises:
        UnsupportedError: GPUs of PEs do not reach each other.

    With the heap in host memory this is :func:`shmem_barrier_all`, and is over when it returns.
    """
    handle = 0 if stream is None else _size(getattr(stream, "cuda_stream", stream), "stream")
    if not _native.call("ShmemBarrierOnStream", handle):
        _native.hot.shmem_order(2)


def heap_device() -> int:
    """Return the number of the GPU that the symmetric heap is on, as in mori.device; -1 in host memory."""
    number: int = _native.call("ShmemDevice")
    return number
