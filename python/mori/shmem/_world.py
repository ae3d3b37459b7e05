# SPDX-License-Identifier: MIT
"""Initialisation and finalisation of a PE, allocation of symmetric memory, and queries."""

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

# Errors that even calls which return 0 or -1 raise, because the caller cannot ignore them.
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
    """Return a new id of 128 bytes. The caller sends it to all ranks for :func:`shmem_init_attr`.

    One rank calls this, before init, on the host of rank 0: the id holds the address at which rank
    0 listens. ``MORI_SOCKET_IFNAME`` chooses the network interface. Any process that knows the id
    can join, so send it over a private channel.
    """
    return bytes.fromhex(_core.call("ShmemUniqueID"))


def shmem_init_attr(flags: int, rank: int, nranks: int, unique_id: bytes) -> int:
    """Become PE ``rank`` of ``nranks``, with all processes that pass the same id. Collective.

    Args:
        flags: MORI_SHMEM_INIT_WITH_UNIQUEID; for an MPI communicator see :func:`shmem_mpi_init`.
        rank: this process's number, 0 to nranks - 1.
        nranks: the number of processes.
        unique_id: the id from :func:`shmem_get_unique_id`.

    Returns:
        0, also if this process is a PE already. -1 and a line in the log on failure: an invalid
        argument, or ranks that did not arrive within ``MORI_BOOTSTRAP_TIMEOUT`` seconds (300).

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
    """Like :func:`shmem_init_attr`, but raise on failure."""
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
    """Report whether this process is a PE."""
    return _core.loaded() and bool(_core.call("ShmemInitialized"))


def shmem_finalize() -> int:
    """Wait for all PEs, then free all symmetric memory. Collective. Afterwards init may be called again.

    Do not use tensors and addresses of symmetric memory after this call. Without an init it does
    nothing.

    Returns:
        0, or -1 and a line in the log if other PEs did not arrive. This PE is finalized in both
        cases.
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
    """Give the kernels of a GPU module, the caller's or Triton's, access to symmetric memory.

    It may be repeated. ``shmem_finalize`` ends the access; the next init in this process restores
    it.

    Args:
        hip_module: a CUmodule or hipModule_t, as a number, on the GPU of the symmetric heap.

    Returns:
        0. -1 and a line in the log if the module has no symbol ``mori_shmem_state``, so no kernel
        of it uses symmetric memory, or if the heap is in host memory.

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
    """Load a file of GPU code, PTX or a code object, and call :func:`shmem_module_init` on it.

    The module stays loaded.

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
    """Return the number of PEs."""
    npes: int = _native.call("ShmemNPEs")
    return npes


def shmem_num_qp_per_pe() -> int:
    """Return the RDMA queue pairs between two PEs: ``MORI_NUM_QP_PER_PE`` at init, or 4."""
    qps: int = _native.call("ShmemNumQPPerPE")
    return qps


def shmem_describe() -> dict[str, Any]:
    """Return the mode, the heap's size and use, the allocations, and why each PE has its path."""
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
    """Allocate ``size`` bytes of symmetric memory on every PE.

    Collective: all PEs request the same sizes in the same order. The address is a multiple of 256.
    The memory is zero unless it was used before.

    Returns:
        Its address on this PE, or 0 if size is 0. Also 0, with a line in the log, if the heap is
        full or the PEs requested different sizes.

    Raises:
        RuntimeError: mori.shmem is not initialised, a PE died (:class:`mori.shmem.PEFailedError`),
            or a PE did not arrive in time.
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
    """Allocate like :func:`shmem_malloc`; ``flags`` are those of hipExtMalloc and are ignored."""
    operator.index(flags)
    return _allocate(f"shmem_ext_malloc_with_flags({size}, {flags})", "ShmemMalloc", _size(size, "size"))


def shmem_free(ptr: int) -> None:
    """Free memory from :func:`shmem_malloc`. Collective.

    0 does nothing. Any other address that is not an allocation is logged.
    """
    try:
        _native.collective("ShmemFree", _size(ptr, "ptr"))
    except _RAISED:
        raise
    except MoriError as err:
        _log(f"shmem_free({ptr:#x})", err)


def shmem_buffer_register(ptr: int, size: int) -> int:
    """Register ordinary memory of this process for transfers. The caller keeps owning it.

    With the heap in host memory this is optional, since any address of the process can be used.
    Registered memory is faster over RDMA.

    Returns:
        0, or -1 and a line in the log.
    """
    return _buffer(f"shmem_buffer_register({ptr:#x}, {size})", "ShmemRegister", ptr, size)


def shmem_buffer_deregister(ptr: int, size: int) -> int:
    """Undo :func:`shmem_buffer_register`."""
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
    """Return the address here of PE ``dest_pe``'s copy of ``dest_ptr``, for loads and stores.

    ``dest_ptr`` is an address in this PE's symmetric memory, and ``my_pe`` is this PE. If
    ``dest_pe`` is this PE, the result is ``dest_ptr``. With the heap on GPUs, the address is for
    kernels.

    Returns 0 in these cases:

    * The PE's memory is not mapped here: it is on another host, or the GPUs cannot access each
      other.
    * The PE does not exist.
    * The address is not symmetric.
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
    """Wait until all PEs have called this and their earlier puts are visible to all. Collective.

    Raises:
        PEFailedError: a PE died; its number is in ``pe``.
        MoriTimeoutError: a PE did not arrive within ``MORI_SHMEM_TIMEOUT`` seconds.
    """
    _native.hot.shmem_order(2)


def shmem_barrier_on_stream(stream: Any = None) -> None:
    """Queue a barrier of all PEs on a stream of the heap's GPU, without waiting for it. Collective.

    Work queued after the barrier on any PE's stream sees all work queued before it on every PE's
    stream, and all puts by earlier calls. If the barrier's kernel waits longer than
    ``MORI_SHMEM_TIMEOUT`` for a PE, it ends, and the next call here raises.

    Args:
        stream: None or 0 for the default stream, a cudaStream_t or hipStream_t as an int, or an
            object with ``cuda_stream``.

    Raises:
        UnsupportedError: the PEs' GPUs cannot access each other.

    With the heap in host memory this is :func:`shmem_barrier_all`, and it waits.
    """
    handle = 0 if stream is None else _size(getattr(stream, "cuda_stream", stream), "stream")
    if not _native.call("ShmemBarrierOnStream", handle):
        _native.hot.shmem_order(2)


def heap_device() -> int:
    """Return the mori.device number of the symmetric heap's GPU; -1 if it is in host memory."""
    number: int = _native.call("ShmemDevice")
    return number
