# SPDX-License-Identifier: MIT
"""Communication for LLM inference and training: KV-cache transfer, symmetric memory, expert parallelism.

Importing this package starts nothing: no native code is loaded, no thread runs, no socket is opened.
Submodules load at first use, as attributes::

    import mori
    engine = mori.io.IOEngine("prefill-0", mori.io.IOEngineConfig("127.0.0.1", 0))

* ``mori.io`` moves blocks of memory between processes and hosts.
* ``mori.shmem`` gives processes memory that they put into and get from without the other side: OpenSHMEM's names.
* ``mori.ops`` brings the tokens of mixture-of-experts layers to their experts and back.
* ``mori.device`` is GPUs without a framework: memory on them, streams, events and copies.
* ``mori.cpp`` holds the same names in one flat space, as the native library spells them.
* ``mori.tensor_utils`` turns tensors and buffers into addresses and back; import it explicitly.

``mori.get_include()`` is the folder of the C++ headers for kernels.
``mori.__version__`` is the version text, or ``"unknown"`` in a tree that was never built.
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
