# SPDX-License-Identifier: MIT
"""The flat native namespace: every class and enum of the native library, and the bare enum values.

``IOEngine`` and ``IOEngineSession`` are here the native ones, whose transfer calls take the status object to report to;
``mori.io`` has the friendlier wrappers. Importing this module starts nothing.
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
from ..io import TransferStatus as TransferStatus
from ..io import XgmiBackendConfig as XgmiBackendConfig
from ..io import fabric_alloc as fabric_alloc
from ..io import fabric_free as fabric_free
from ..io import set_log_level as set_log_level
from ..io._native import IOEngine as IOEngine
from ..io._native import IOEngineSession as IOEngineSession

XGMI = BackendType.XGMI
RDMA = BackendType.RDMA
TCP = BackendType.TCP
FABRIC = BackendType.FABRIC

# Two enums export an Unknown; the memory location's is the one that remains.
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
