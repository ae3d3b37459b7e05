# SPDX-License-Identifier: MIT
"""The classes of ``mori.io``, at the path from which older programs import them.

``mori_cpp`` is :mod:`mori.cpp`.
"""

from typing import Any

from ._config import BackendConfig as BackendConfig
from ._config import FabricBackendConfig as FabricBackendConfig
from ._config import IOEngineConfig as IOEngineConfig
from ._config import RdmaBackendConfig as RdmaBackendConfig
from ._config import TcpBackendConfig as TcpBackendConfig
from ._config import XgmiBackendConfig as XgmiBackendConfig
from ._desc import EngineDesc as EngineDesc
from ._desc import MemoryDesc as MemoryDesc
from ._engine import TORCH_DEVICE_TYPE_MAP as TORCH_DEVICE_TYPE_MAP
from ._engine import IOEngine as IOEngine
from ._enums import BackendType as BackendType
from ._enums import MemoryLocationType as MemoryLocationType
from ._enums import PollCqMode as PollCqMode
from ._enums import StatusCode as StatusCode
from ._session import IOEngineSession as IOEngineSession
from ._status import TransferStatus as TransferStatus
from .fabric_copy_jit import ensure_fabric_copy_kernel as ensure_fabric_copy_kernel
from .scatter_gather_jit import ensure_scatter_gather_kernel as ensure_scatter_gather_kernel


def __getattr__(name: str) -> Any:
    if name == "mori_cpp":  # imported late: mori.cpp imports this package
        import mori.cpp

        return mori.cpp
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
