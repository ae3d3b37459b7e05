# SPDX-License-Identifier: MIT
"""GPUs without a framework: which there are, memory on them, pinned host memory, streams, events and copies.

NVIDIA and AMD alike, through the driver that is installed; neither torch nor a vendor's toolkit is needed, and both may
be used beside this in one process: memory and streams work together. Importing this module opens nothing; the first
call looks for the drivers, and the first that works on a GPU makes its context, some hundred MiB on NVIDIA's::

    from mori import device

    for gpu in device.devices():
        print(gpu.name, gpu.bytes >> 30, "GiB")

    with device.DeviceMemory(1 << 20) as memory, device.Stream() as stream:
        memory.write(b"hello")
        device.copy(memory.ptr + 4096, memory.ptr, 5, stream)
        stream.wait()
        assert memory.read(5, offset=4096) == b"hello"

**Numbers.** GPUs have numbers from 0, their places in :func:`devices`; on machines with one vendor's GPUs that is the
vendor's own number, as in torch's ``cuda:1``. Where ``device`` is not given it is 0. Sizes are bytes, timeouts seconds.

**Ownership.** Memory, streams and events belong to who made them: ``close()``, ``with``, or the end of the last
reference gives them back. Nothing may be under way on them then. An address keeps nothing alive.

**Order.** What a stream is given it does in that order, beside the host and other streams. Calls without a stream
(:meth:`DeviceMemory.write`, ``read``, ``fill``, and :func:`copy`) come after what the GPU's default stream was given
before, which is where torch's work goes unless it says otherwise, and are done when they return. All may be called
from any thread.

**Errors.** All derive from ``RuntimeError`` and from the built-in class that says the same. Without a GPU calls raise
``UnsupportedError`` with the driver's reason, a full GPU ``OutOfMemoryError`` (a ``MemoryError``), a wrong number or
range ``InvalidArgumentError`` (a ``ValueError``), what was closed ``BadStateError``, and in a forked child
``ForkError``. A wait with a timeout raises ``MoriTimeoutError`` (a ``TimeoutError``); Ctrl-C ends every wait.
"""

from .._errors import BadStateError as BadStateError
from .._errors import ForkError as ForkError
from .._errors import InvalidArgumentError as InvalidArgumentError
from .._errors import MoriError as MoriError
from .._errors import MoriTimeoutError as MoriTimeoutError
from .._errors import OutOfMemoryError as OutOfMemoryError
from .._errors import UnsupportedError as UnsupportedError
from ._copy import copy as copy
from ._info import DeviceInfo as DeviceInfo
from ._info import MemoryInfo as MemoryInfo
from ._info import Pointer as Pointer
from ._info import Reach as Reach
from ._info import devices as devices
from ._info import enable_peer as enable_peer
from ._info import lookup as lookup
from ._info import memory_info as memory_info
from ._info import reach as reach
from ._info import why_no_device as why_no_device
from ._memory import DeviceMemory as DeviceMemory
from ._memory import HostMemory as HostMemory
from ._stream import Event as Event
from ._stream import Stream as Stream

__all__ = [
    "BadStateError",
    "DeviceInfo",
    "DeviceMemory",
    "Event",
    "ForkError",
    "HostMemory",
    "InvalidArgumentError",
    "MemoryInfo",
    "MoriError",
    "MoriTimeoutError",
    "OutOfMemoryError",
    "Pointer",
    "Reach",
    "Stream",
    "UnsupportedError",
    "copy",
    "devices",
    "enable_peer",
    "lookup",
    "memory_info",
    "reach",
    "why_no_device",
]
