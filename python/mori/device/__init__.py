# SPDX-License-Identifier: MIT
"""GPUs without a framework: devices, GPU memory, pinned host memory, streams, events and copies.

The module uses the installed NVIDIA or AMD driver. It needs neither torch nor a vendor toolkit. It
works beside them in one process, with memory and streams shared. Importing this module opens
nothing. The first call looks for the drivers. The first call that uses a GPU makes its context,
which takes some hundred MiB on NVIDIA GPUs::

    from mori import device

    for gpu in device.devices():
        print(gpu.name, gpu.bytes >> 30, "GiB")

    with device.DeviceMemory(1 << 20) as memory, device.Stream() as stream:
        memory.write(b"hello")
        device.copy(memory.ptr + 4096, memory.ptr, 5, stream)
        stream.wait()
        assert memory.read(5, offset=4096) == b"hello"

**Numbers.** A GPU's number is its index in :func:`devices`. If all GPUs are from one vendor, it
equals the vendor's number, as in torch's ``cuda:1``. ``device`` defaults to 0. Sizes are in bytes,
timeouts in seconds.

**Ownership.** The creator owns memory, streams and events. ``close()``, the end of a ``with``
block, or dropping the last reference frees them. No work may be pending on them then. An address
keeps nothing alive.

**Order.** A stream runs its work in order, concurrently with the host and other streams. Calls
without a stream (:meth:`DeviceMemory.write`, ``read``, ``fill``, and :func:`copy`) run after all
earlier work of the GPU's default stream, which torch uses by default. They are done when they
return. All calls may be made from any thread.

**Errors.** All derive from ``RuntimeError``, and those with a matching built-in class also from it.

* ``UnsupportedError``: there is no GPU; the message has the driver's reason.
* ``OutOfMemoryError`` (a ``MemoryError``): the GPU is out of memory.
* ``InvalidArgumentError`` (a ``ValueError``): a number or range is invalid.
* ``BadStateError``: the object is closed.
* ``ForkError``: the call was made in a forked child.
* ``MoriTimeoutError`` (a ``TimeoutError``): a wait reached its timeout. Ctrl-C interrupts every
  wait.
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
