# SPDX-License-Identifier: MIT
"""Symmetric memory for compiler-generated kernels: the device library's functions and bitcode.

    from mori import ir

    ir.bitcode("sm_90")                      # the path of LLVM bitcode; "gfx942" for AMD
    ir.MORI_DEVICE_FUNCTIONS["barrier_all_block"]
    # {'symbol': 'mori_shmem_barrier_all_block', 'args': [], 'ret': 'int32'}

A module linked with it has the symbol ``mori_shmem_state``. Call
``mori.shmem.shmem_module_init(module)`` to fill it in before the first launch. ``mori.ir.triton``
has the functions for Triton's kernels. Nothing here needs a GPU.
"""

from ._bitcode import architectures as architectures
from ._bitcode import bitcode as bitcode
from ._functions import MORI_DEVICE_FUNCTIONS as MORI_DEVICE_FUNCTIONS
from ._functions import SIGNAL_ADD as SIGNAL_ADD
from ._functions import SIGNAL_SET as SIGNAL_SET
from ._functions import DeviceFunction as DeviceFunction
