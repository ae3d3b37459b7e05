# SPDX-License-Identifier: MIT
"""Native calls of mori.shmem.

``hot`` has the C functions. Before the first init it is a stand-in whose functions raise, so that
nothing starts the native runtime early. :func:`run` is for calls that wait for other PEs. It waits
in slices, so that Ctrl-C works.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _core
from .._core import run as run
from .._errors import BadStateError, InvalidArgumentError
from ..tensor_utils import dtype_name, dtype_size

# Element type numbers of shmem and core/fabric. Other element types can be copied but not computed
# on.
_NUMBERS = {
    "int8": 1,
    "uint8": 2,
    "int16": 3,
    "uint16": 4,
    "int32": 5,
    "uint32": 6,
    "int64": 7,
    "uint64": 8,
    "float32": 9,
    "float64": 10,
    "complex64": 11,
    "complex128": 12,
    "float16": 128,
    "bfloat16": 129,
}
_PYTHON_TYPES: dict[Any, str] = {int: "int64", float: "float64", bool: "bool", complex: "complex128"}


class _BeforeInit:
    """Stands in for the C functions before init: every function raises BadStateError."""

    def __getattr__(self, name: str) -> NoReturn:
        raise BadStateError(
            "mori.shmem is not initialised: call shmem_init_attr, shmem_torch_process_group_init, shmem_mpi_init or"
            " shmem_init first"
        )


hot: Any = _BeforeInit()


def call(name: str, *args: Any) -> Any:
    """Run a native function that does not wait; raise before the first init."""
    if isinstance(hot, _BeforeInit):
        hot.any()
    return _core.call(name, *args)


def collective(name: str, *args: Any) -> int:
    """Like :func:`run`, but raise before the first init."""
    if isinstance(hot, _BeforeInit):
        hot.any()
    return run(name, *args)


def initialise(name: str, *args: Any) -> None:
    """Make this process a PE by running a native job."""
    global hot
    fast = _core.fast()
    run(name, *args)
    if isinstance(hot, _BeforeInit):
        fast.shmem_setup({}, _element, InvalidArgumentError)
        hot = fast


def _element(dtype: Any) -> int:
    """Return the C code of a dtype: its core/fabric number, with its size in the low 8 bits."""
    name = _PYTHON_TYPES.get(dtype) if isinstance(dtype, type) else None
    name = name or dtype_name(dtype)
    if getattr(dtype, "byteorder", "=") in "><!" and dtype != dtype.newbyteorder("="):
        raise InvalidArgumentError(f"unsupported dtype {dtype!r}: its byte order is not this machine's")
    if name in _NUMBERS:
        return _NUMBERS[name] << 8 | dtype_size(name)
    try:
        return dtype_size(name)
    except ValueError as err:
        size = getattr(dtype, "itemsize", 0)
        if isinstance(size, int) and 0 < size < 256:
            return size
        raise InvalidArgumentError(str(err)) from None
