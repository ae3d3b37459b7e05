# SPDX-License-Identifier: MIT
"""Symmetric memory with one-sided put and get between PEs (processing elements, one per process).

The functions are those of OpenSHMEM 1.6 and some of mori's own; docs/design/shmem.md lists them.
Typical use::

    import numpy as np
    import mori.shmem as shmem

    shmem.shmem_init()  # or shmem_init_attr, shmem_torch_process_group_init, shmem_mpi_init
    me, npes = shmem.shmem_mype(), shmem.shmem_npes()
    row = shmem.mori_shmem_create_tensor((4,), np.float32)
    shmem.shmem_put(row, np.full(4, me, np.float32), 4, (me + 1) % npes)
    shmem.shmem_barrier_all()  # row is now that of the PE to the left
    shmem.shmem_finalize()

Importing this package starts nothing; the first init does. Functions that need an init raise
RuntimeError before it. In a forked child of a PE, calls raise ForkError. When a PE dies, every
waiting call of the other PEs raises :class:`PEFailedError`.
"""

from __future__ import annotations

from typing import Any

from .._errors import MismatchError as MismatchError
from .._errors import OutOfMemoryError as OutOfMemoryError
from .._errors import PEFailedError as PEFailedError
from .._errors import UnsupportedError as UnsupportedError
from . import api as api
from .api import MORI_SHMEM_INIT_WITH_MPI_COMM as MORI_SHMEM_INIT_WITH_MPI_COMM
from .api import MORI_SHMEM_INIT_WITH_UNIQUEID as MORI_SHMEM_INIT_WITH_UNIQUEID
from .api import SHMEM_CMP_EQ as SHMEM_CMP_EQ
from .api import SHMEM_CMP_GE as SHMEM_CMP_GE
from .api import SHMEM_CMP_GT as SHMEM_CMP_GT
from .api import SHMEM_CMP_LE as SHMEM_CMP_LE
from .api import SHMEM_CMP_LT as SHMEM_CMP_LT
from .api import SHMEM_CMP_NE as SHMEM_CMP_NE
from .api import SHMEM_SIGNAL_ADD as SHMEM_SIGNAL_ADD
from .api import SHMEM_SIGNAL_SET as SHMEM_SIGNAL_SET
from .api import SHMEM_TEAM_INVALID as SHMEM_TEAM_INVALID
from .api import SHMEM_TEAM_SHARED as SHMEM_TEAM_SHARED
from .api import SHMEM_TEAM_WORLD as SHMEM_TEAM_WORLD
from .api import Team as Team
from .api import ctypes as ctypes
from .api import mori_cpp as mori_cpp
from .api import shmem_alltoall as shmem_alltoall
from .api import shmem_alltoalls as shmem_alltoalls
from .api import shmem_and_reduce as shmem_and_reduce
from .api import shmem_atomic_add as shmem_atomic_add
from .api import shmem_atomic_and as shmem_atomic_and
from .api import shmem_atomic_compare_swap as shmem_atomic_compare_swap
from .api import shmem_atomic_fetch as shmem_atomic_fetch
from .api import shmem_atomic_fetch_add as shmem_atomic_fetch_add
from .api import shmem_atomic_fetch_and as shmem_atomic_fetch_and
from .api import shmem_atomic_fetch_inc as shmem_atomic_fetch_inc
from .api import shmem_atomic_fetch_or as shmem_atomic_fetch_or
from .api import shmem_atomic_fetch_xor as shmem_atomic_fetch_xor
from .api import shmem_atomic_inc as shmem_atomic_inc
from .api import shmem_atomic_or as shmem_atomic_or
from .api import shmem_atomic_set as shmem_atomic_set
from .api import shmem_atomic_swap as shmem_atomic_swap
from .api import shmem_atomic_xor as shmem_atomic_xor
from .api import shmem_barrier_all as shmem_barrier_all
from .api import shmem_barrier_on_stream as shmem_barrier_on_stream
from .api import shmem_broadcast as shmem_broadcast
from .api import shmem_buffer_deregister as shmem_buffer_deregister
from .api import shmem_buffer_register as shmem_buffer_register
from .api import shmem_calloc as shmem_calloc
from .api import shmem_collect as shmem_collect
from .api import shmem_describe as shmem_describe
from .api import shmem_ext_malloc_with_flags as shmem_ext_malloc_with_flags
from .api import shmem_fcollect as shmem_fcollect
from .api import shmem_fence as shmem_fence
from .api import shmem_finalize as shmem_finalize
from .api import shmem_free as shmem_free
from .api import shmem_g as shmem_g
from .api import shmem_get as shmem_get
from .api import shmem_get_nbi as shmem_get_nbi
from .api import shmem_get_unique_id as shmem_get_unique_id
from .api import shmem_getmem as shmem_getmem
from .api import shmem_getmem_nbi as shmem_getmem_nbi
from .api import shmem_iget as shmem_iget
from .api import shmem_init as shmem_init
from .api import shmem_init_attr as shmem_init_attr
from .api import shmem_iput as shmem_iput
from .api import shmem_malloc as shmem_malloc
from .api import shmem_malloc_align as shmem_malloc_align
from .api import shmem_max_reduce as shmem_max_reduce
from .api import shmem_min_reduce as shmem_min_reduce
from .api import shmem_module_init as shmem_module_init
from .api import shmem_mpi_init as shmem_mpi_init
from .api import shmem_mype as shmem_mype
from .api import shmem_npes as shmem_npes
from .api import shmem_num_qp_per_pe as shmem_num_qp_per_pe
from .api import shmem_or_reduce as shmem_or_reduce
from .api import shmem_p as shmem_p
from .api import shmem_prod_reduce as shmem_prod_reduce
from .api import shmem_ptr as shmem_ptr
from .api import shmem_ptr_p2p as shmem_ptr_p2p
from .api import shmem_put as shmem_put
from .api import shmem_put_nbi as shmem_put_nbi
from .api import shmem_put_signal as shmem_put_signal
from .api import shmem_put_signal_nbi as shmem_put_signal_nbi
from .api import shmem_putmem as shmem_putmem
from .api import shmem_putmem_nbi as shmem_putmem_nbi
from .api import shmem_putmem_signal as shmem_putmem_signal
from .api import shmem_putmem_signal_nbi as shmem_putmem_signal_nbi
from .api import shmem_quiet as shmem_quiet
from .api import shmem_signal_fetch as shmem_signal_fetch
from .api import shmem_signal_wait_until as shmem_signal_wait_until
from .api import shmem_sum_reduce as shmem_sum_reduce
from .api import shmem_sync_all as shmem_sync_all
from .api import shmem_team_destroy as shmem_team_destroy
from .api import shmem_team_my_pe as shmem_team_my_pe
from .api import shmem_team_n_pes as shmem_team_n_pes
from .api import shmem_team_split_2d as shmem_team_split_2d
from .api import shmem_team_split_strided as shmem_team_split_strided
from .api import shmem_team_sync as shmem_team_sync
from .api import shmem_team_translate_pe as shmem_team_translate_pe
from .api import shmem_test as shmem_test
from .api import shmem_test_all as shmem_test_all
from .api import shmem_test_all_vector as shmem_test_all_vector
from .api import shmem_test_any as shmem_test_any
from .api import shmem_test_any_vector as shmem_test_any_vector
from .api import shmem_test_some as shmem_test_some
from .api import shmem_test_some_vector as shmem_test_some_vector
from .api import shmem_torch_process_group_init as shmem_torch_process_group_init
from .api import shmem_wait_until as shmem_wait_until
from .api import shmem_wait_until_all as shmem_wait_until_all
from .api import shmem_wait_until_all_vector as shmem_wait_until_all_vector
from .api import shmem_wait_until_any as shmem_wait_until_any
from .api import shmem_wait_until_any_vector as shmem_wait_until_any_vector
from .api import shmem_wait_until_some as shmem_wait_until_some
from .api import shmem_wait_until_some_vector as shmem_wait_until_some_vector
from .api import shmem_xor_reduce as shmem_xor_reduce
from .api import threading as threading

# Names of a module that imports a framework when they are used.
_TENSORS = (
    "MoriShmemBuffer",
    "mori_shmem_create_tensor",
    "mori_shmem_create_tensor_list_intra_node",
    "mori_shmem_free_tensor",
    "symm_mori_shmem_tensor",
)


def __getattr__(name: str) -> Any:
    if name not in _TENSORS:
        raise AttributeError(f"module 'mori.shmem' has no attribute {name!r}")
    from . import tensor_utils

    return getattr(tensor_utils, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_TENSORS})
