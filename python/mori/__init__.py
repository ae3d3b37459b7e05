# SPDX-License-Identifier: MIT
"""Communication for LLM inference and training: KV-cache transfer, symmetric memory, expert parallelism.

Importing this package loads no native code, starts no thread and opens no socket.
Submodules load as attributes at first use::

    import mori
    engine = mori.io.IOEngine("prefill-0", mori.io.IOEngineConfig("127.0.0.1", 0))

* ``mori.io`` moves blocks of memory between processes and hosts.
* ``mori.shmem`` is symmetric memory with one-sided put and get, under OpenSHMEM's names.
* ``mori.ops`` dispatches the tokens of mixture-of-experts layers to their experts and combines the
  results.
* ``mori.device`` manages GPU memory, streams, events and copies without a framework.
* ``mori.cpp`` holds the same names in one flat namespace, spelled as in the native library.
* ``mori.tensor_utils`` converts tensors and buffers to addresses and back; import it explicitly.

``mori.get_include()`` returns the folder of the C++ headers for kernels.
``mori.__version__`` is the version string, or ``"unknown"`` in a tree that was never built.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._include import get_include as get_include

try:
    from ._version import __version__ as __version__
except ImportError:
    __version__ = "unknown"

if TYPE_CHECKING:
    from . import cpp as cpp
    from . import device as device
    from . import io as io
    from . import ops as ops
    from . import shmem as shmem

_LAZY = ("cpp", "device", "ops", "jax", "shmem", "io", "ir", "kernel_profiler", "ccl")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'mori' has no attribute {name!r}")
    path = f"{__name__}.{name}"
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as err:
        if err.name != path:
            raise
        raise AttributeError(f"mori.{name} is not part of this build of mori ({__version__})") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
