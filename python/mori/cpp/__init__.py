# SPDX-License-Identifier: MIT
"""The flat native namespace: every class and enum of the native library, and the bare enum values.

``IOEngine`` and ``IOEngineSession`` here are the native classes, whose transfer calls take the
status object as an argument. ``mori.io`` has more convenient wrappers. Importing this module starts
nothing.
"""

from ..io import BackendConfig as BackendConfig
from ..io import BackendType as BackendType
from ..io import EngineDesc as EngineDesc
from ..io import FabricBackendConfig as FabricBackendConfig
from ..io import IOEngineConfig as IOEngineConfig
from ..io import MemoryDesc as MemoryDesc
from ..io import MemoryLocationType as MemoryLocationType
from ..io import PollCqMode as PollCqMode
from ..io import RdmaBackendConfig as RdmaBackendConfig
from ..io import StatusCode as StatusCode
from ..io import TcpBackendConfig as TcpBackendConfig
from ..io import TransferStatus as TransferStatus
from ..io import XgmiBackendConfig as XgmiBackendConfig
from ..io import fabric_alloc as fabric_alloc
from ..io import fabric_free as fabric_free
from ..io import set_log_level as set_log_level
from ..io._native import IOEngine as IOEngine
from ..io._native import IOEngineSession as IOEngineSession
from ..ops._count import launch_local_expert_count as launch_local_expert_count
from ..ops._enums import EpDispatchCombineKernelType as EpDispatchCombineKernelType
from ..ops._enums import EpDispatchCombineQuantType as EpDispatchCombineQuantType
from ..ops._handle import build_args as build_args
from ..ops._handle import build_args_with_routing as build_args_with_routing
from ..ops._handle import get_combine_output_ptrs as get_combine_output_ptrs
from ..ops._handle import get_cur_rank_num_token as get_cur_rank_num_token
from ..ops._handle import get_dispatch_output_ptrs as get_dispatch_output_ptrs
from ..ops._handle import get_handle_info as get_handle_info
from ..ops._handle import launch_reset as launch_reset
from ..ops._handle import prepare_inference_args as prepare_inference_args
from ..ops._native_config import EpDispatchCombineConfig as EpDispatchCombineConfig
from ..shmem._world import MORI_SHMEM_INIT_WITH_MPI_COMM as MORI_SHMEM_INIT_WITH_MPI_COMM
from ..shmem._world import MORI_SHMEM_INIT_WITH_UNIQUEID as MORI_SHMEM_INIT_WITH_UNIQUEID
from ..shmem._world import load_shmem_module as load_shmem_module
from ..shmem._world import shmem_barrier_all as shmem_barrier_all
from ..shmem._world import shmem_barrier_on_stream as shmem_barrier_on_stream
from ..shmem._world import shmem_buffer_deregister as shmem_buffer_deregister
from ..shmem._world import shmem_buffer_register as shmem_buffer_register
from ..shmem._world import shmem_ext_malloc_with_flags as shmem_ext_malloc_with_flags
from ..shmem._world import shmem_finalize as shmem_finalize
from ..shmem._world import shmem_free as shmem_free
from ..shmem._world import shmem_get_unique_id as shmem_get_unique_id
from ..shmem._world import shmem_init_attr as shmem_init_attr
from ..shmem._world import shmem_malloc as shmem_malloc
from ..shmem._world import shmem_malloc_align as shmem_malloc_align
from ..shmem._world import shmem_module_init as shmem_module_init
from ..shmem._world import shmem_mype as shmem_mype
from ..shmem._world import shmem_npes as shmem_npes
from ..shmem._world import shmem_num_qp_per_pe as shmem_num_qp_per_pe
from ..shmem._world import shmem_ptr_p2p as shmem_ptr_p2p

XGMI = BackendType.XGMI
RDMA = BackendType.RDMA
TCP = BackendType.TCP
FABRIC = BackendType.FABRIC

# Two enums export a member Unknown; the one of MemoryLocationType is kept.
Unknown = MemoryLocationType.Unknown
CPU = MemoryLocationType.CPU
GPU = MemoryLocationType.GPU

SUCCESS = StatusCode.SUCCESS
INIT = StatusCode.INIT
IN_PROGRESS = StatusCode.IN_PROGRESS
ERR_INVALID_ARGS = StatusCode.ERR_INVALID_ARGS
ERR_NOT_FOUND = StatusCode.ERR_NOT_FOUND
ERR_RDMA_OP = StatusCode.ERR_RDMA_OP
ERR_BAD_STATE = StatusCode.ERR_BAD_STATE
ERR_GPU_OP = StatusCode.ERR_GPU_OP
ERR_BAD_ADDRESS = StatusCode.ERR_BAD_ADDRESS
