# SPDX-License-Identifier: MIT
"""Transfers of memory blocks between processes and hosts, mainly for KV caches.

An engine registers memory and knows its peers. Its backends move the bytes. A session is a prepared
pair of memories. An example within one process::

    from mori.io import BackendType, IOEngine, IOEngineConfig, MemoryLocationType
    from mori.tensor_utils import buffer_span

    source, target = bytearray(b"hello"), bytearray(5)
    with IOEngine("me", IOEngineConfig("127.0.0.1", 0)) as engine:
        engine.create_backend(BackendType.RDMA)
        here, there = (engine.register_memory(*buffer_span(b)) for b in (source, target))
        status = engine.create_session(here, there).write(0, 0, 5, engine.allocate_transfer_uid())
        status.Wait()
        assert status.Succeeded() and target == b"hello"

Importing this module starts nothing. The native runtime starts with the first engine, status or
unpacked description.
"""

from .._errors import BadStateError as BadStateError
from .._errors import BusyError as BusyError
from .._errors import ConnectionFailedError as ConnectionFailedError
from .._errors import ExtensionError as ExtensionError
from .._errors import ForkError as ForkError
from .._errors import InvalidArgumentError as InvalidArgumentError
from .._errors import MoriError as MoriError
from .._errors import MoriTimeoutError as MoriTimeoutError
from .._errors import NotFoundError as NotFoundError
from .._errors import UnsupportedError as UnsupportedError
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
from ._log import set_log_level as set_log_level
from ._session import IOEngineSession as IOEngineSession
from ._status import TransferStatus as TransferStatus
from .fabric_allocator import fabric_alloc as fabric_alloc
from .fabric_allocator import fabric_free as fabric_free
from .fabric_allocator import fabric_mem_pool as fabric_mem_pool
from .fabric_allocator import fabric_torch_allocator as fabric_torch_allocator
from .fabric_allocator import make_fabric_mem_pool as make_fabric_mem_pool
from .fabric_allocator import use_fabric_torch_allocator as use_fabric_torch_allocator
