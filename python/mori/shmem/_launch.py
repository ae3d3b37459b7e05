# SPDX-License-Identifier: MIT
"""Becoming a PE through a torch process group, an MPI communicator, a launcher or a file."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

from .. import _core
from .._errors import BadStateError, ConnectionFailedError, InvalidArgumentError, MoriError, UnsupportedError
from . import _native
from ._world import MORI_SHMEM_INIT_WITH_UNIQUEID, init_by_id, initialized, shmem_get_unique_id


def _make_id() -> tuple[bytes | None, str]:
    """Return a new id, or None and the reason for a failure.

    Rank 0 must send the other ranks a result either way, because they wait for it.
    """
    try:
        return shmem_get_unique_id(), ""
    except MoriError as err:
        return None, str(err)


def _init_with(told: tuple[bytes | None, str], rank: int, nranks: int) -> int:
    unique_id, problem = told
    if unique_id is None:
        raise ConnectionFailedError(f"rank 0 could not make a unique id: {problem}")
    init_by_id(MORI_SHMEM_INIT_WITH_UNIQUEID, rank, nranks, unique_id)
    return 0


def shmem_torch_process_group_init(group_name: str) -> int:
    """Make the ranks of a torch process group PEs, with the same numbers. Collective over the group.

    Args:
        group_name: the name under which the group was registered:
            ``torch._C._distributed_c10d._register_process_group(name, group)``.

    Returns:
        0; also if this process is a PE already.

    Raises:
        RuntimeError: torch is missing, torch.distributed is not initialised, the group does not
            exist, or a rank did not arrive within ``MORI_BOOTSTRAP_TIMEOUT`` seconds.
    """
    if not isinstance(group_name, str):
        raise TypeError(f"group_name must be a str, got {group_name!r}")
    try:
        dist: Any = importlib.import_module("torch.distributed")
    except ImportError as err:
        raise UnsupportedError(f"shmem_torch_process_group_init needs torch, which cannot be imported: {err}") from err
    if not dist.is_available() or not dist.is_initialized():
        raise BadStateError("torch.distributed is not initialised: call torch.distributed.init_process_group first")
    c10d: Any = importlib.import_module("torch._C._distributed_c10d")
    try:
        group = c10d._resolve_process_group(group_name)
    except Exception as err:
        raise InvalidArgumentError(
            f"no torch process group is registered as {group_name!r}:"
            " torch._C._distributed_c10d._register_process_group(name, group) does that"
        ) from err
    if initialized():
        return 0
    rank, nranks = dist.get_rank(group), dist.get_world_size(group)
    told: list[Any] = [_make_id() if rank == 0 else None]
    dist.broadcast_object_list(told, src=dist.get_global_rank(group, 0), group=group)
    return _init_with(told[0], rank, nranks)


def shmem_mpi_init() -> int:
    """Make the ranks of MPI's world communicator PEs, with the same numbers. Collective.

    With mpi4py, the unique id is broadcast over that communicator. Without mpi4py, the variables
    that the launcher (mpirun, srun) sets are used. They are enough on one host, and with Slurm on
    several hosts; see :func:`shmem_init`.

    Returns:
        0; also if this process is a PE already.

    Raises:
        RuntimeError: the ranks did not find each other, or no environment variable has their
            numbers.
    """
    if initialized():
        return 0
    launched = json.loads(_core.call("ShmemLaunched"))
    try:
        mpi: Any = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as err:  # mpi4py or its MPI library is missing
        if launched is None:
            raise UnsupportedError(
                f"shmem_mpi_init needs mpi4py, or to be started by mpirun or srun; mpi4py.MPI: {err}"
            ) from err
        mpi = None
    # If MPI does not know the launcher, it makes the process a singleton of size 1.
    if mpi is None or (mpi.COMM_WORLD.size == 1 and launched is not None and launched["size"] > 1):
        return shmem_init()
    comm = mpi.COMM_WORLD
    return _init_with(comm.bcast(_make_id() if comm.rank == 0 else None, root=0), comm.rank, comm.size)


def shmem_init(
    *, file: str | os.PathLike[str] | None = None, rank: int | None = None, nranks: int | None = None
) -> int:
    """Become a PE under any launcher, or without one. Collective.

    Without arguments it reads the launcher's variables: those of torchrun, Ray Train, mpirun of
    Open MPI or MPICH, srun, or ``MORI_RANK``, ``MORI_WORLD_SIZE`` and ``MORI_BOOTSTRAP``. Without a
    launcher this process is the only PE. So the same program runs as one process, on one host and
    on many.

    Args:
        file: a path that all ranks can access and no other run uses at the same time. Rank 0 writes
            its address there.
        rank: with ``file``: this process's number.
        nranks: with ``file``: the number of processes.

    Returns:
        0; also if this process is a PE already.

    Raises:
        RuntimeError: ranks did not arrive within ``MORI_BOOTSTRAP_TIMEOUT`` seconds; the message
            names them.
        ValueError: the arguments or the launcher's variables contradict each other.
    """
    if initialized():
        return 0
    if file is None:
        if rank is not None or nranks is not None:
            raise InvalidArgumentError("rank and nranks need file=; without it the launcher provides them")
        _native.initialise("ShmemInitLaunched")
        return 0
    if rank is None or nranks is None or not 0 <= rank < nranks < 2**31:
        raise InvalidArgumentError(f"file= needs rank and nranks, 0 <= rank < nranks; got rank={rank}, nranks={nranks}")
    _native.initialise("ShmemInitFile", os.fspath(file), rank, nranks)
    return 0
