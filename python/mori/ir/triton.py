# SPDX-License-Identifier: MIT
"""Symmetric memory in Triton's kernels.

    import mori.ir.triton as mori_device

    mori_device.install_hook()  # once, after mori.shmem is initialised

    @triton.jit
    def pass_on(target, source, nbytes, signal):
        right = (mori_device.my_pe() + 1) % mori_device.n_pes()
        mori_device.putmem_nbi_signal_block(target, source, nbytes, signal, 1, 9, right, 0)
        mori_device.uint64_wait_until_equals(signal, 1)

    pass_on[(1,)](target, source, nbytes, signal, extern_libs=mori_device.extern_libs())

Each name in ``mori.ir.MORI_DEVICE_FUNCTIONS`` is a function here. Its arguments are scalars or
pointers, converted to the types of the table. A Triton program is a block of threads, and each of
its threads makes the call. So use the ``block`` operations, and only those ``thread`` operations
that all threads may repeat (waits, quiet, fence).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from triton import knobs
from triton.language import core
from triton.runtime import driver

from mori.shmem import shmem_module_init

from ._bitcode import bitcode
from ._functions import MORI_DEVICE_FUNCTIONS, DeviceFunction

# AMD's compiler links a library only if its name is part of the missing function's name.
_LIBRARY = "mori_shmem"
_TYPES = {"float32": "fp32", "float64": "fp64"}


def extern_libs() -> dict[str, str]:
    """Return the library for the current GPU, as the ``extern_libs`` of a launch."""
    return {_LIBRARY: bitcode(driver.active.get_current_target().arch)}


def install_hook() -> None:
    """Initialise symmetric memory in each kernel that Triton loads from now on and that uses it."""
    knobs.runtime.kernel_load_end_hook.add(_fill_in)  # added once, even if called again


def _fill_in(module: Any, function: Any, name: str, metadata_group: dict[str, str], hash: str) -> None:
    if _uses_symmetric_memory(metadata_group) and shmem_module_init(module) != 0:
        raise RuntimeError(f"kernel {name} uses symmetric memory, and mori.shmem is not initialised on this GPU")


def _uses_symmetric_memory(files: dict[str, str]) -> bool:
    """Report whether a kernel has the symbol, according to the assembly that Triton keeps."""
    for path in files.values():
        if path.endswith((".ptx", ".amdgcn")):
            return "mori_shmem_state" in Path(path).read_text()
    return True


def _dtype(name: str) -> core.dtype:
    return core.dtype(_TYPES.get(name, name))


def _external(name: str, entry: DeviceFunction) -> Callable[..., Any]:
    types = tuple(_dtype(of) for of in entry["args"])
    symbols = {types: (entry["symbol"], _dtype(entry["ret"]))}

    def call(*args: Any, _semantic: Any = None) -> Any:
        if len(args) != len(types):
            raise TypeError(f"{name} takes {len(types)} arguments ({', '.join(entry['args'])}), not {len(args)}")
        tensors = map(_semantic.to_tensor, args)
        values = [core.cast(arg, of, _semantic=_semantic) for arg, of in zip(tensors, types, strict=True)]
        pure = entry.get("pure", False)
        return core.extern_elementwise("", "", values, symbols, is_pure=pure, _semantic=_semantic)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{entry['symbol']}({', '.join(entry['args'])}) -> {entry['ret']}"
    made: Callable[..., Any] = core.extern(call)
    return made


for _name, _entry in MORI_DEVICE_FUNCTIONS.items():
    globals()[_name] = _external(_name, _entry)
