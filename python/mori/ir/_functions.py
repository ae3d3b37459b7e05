# SPDX-License-Identifier: MIT
"""The functions of native/kernels/shmem/library.cpp: names, symbols, types."""

from __future__ import annotations

from typing import Literal, Protocol, TypedDict

Type = Literal["int32", "uint32", "int64", "uint64", "float32", "float64"]

# Operations of a signal on its word (signal_op of putmem_nbi_signal_*).
SIGNAL_SET = 9
SIGNAL_ADD = 10


class _Required(TypedDict):
    symbol: str
    args: list[Type]
    ret: Type


class DeviceFunction(_Required, total=False):
    """A function of the device library. Addresses are uint64. Functions without result return 0."""

    pure: bool
    """The function has no side effects, so the compiler may drop a call whose result is unused."""


class _Add(Protocol):
    def __call__(self, name: str, args: list[Type], ret: Type = "int32") -> None: ...


_ADDRESS: Type = "uint64"
_COUNT: Type = "uint64"
# The PE, and the queue to use if the PE is reached over a network.
_PE: list[Type] = ["int32", "int32"]
_SCOPES = ("thread", "warp", "block")


def _table() -> dict[str, DeviceFunction]:
    table: dict[str, DeviceFunction] = {}

    def add(name: str, args: list[Type], ret: Type = "int32") -> None:
        table[name] = {"symbol": f"mori_shmem_{name}", "args": args, "ret": ret}

    add("my_pe", [])
    add("n_pes", [])
    add("ptr_p2p", [_ADDRESS, "int32", "int32"], "uint64")  # address, my PE, PE
    add("ptr", [_ADDRESS, "int32"], "uint64")
    for name in tuple(table):
        table[name]["pure"] = True
    for order in ("quiet_thread", "fence_thread"):
        add(order, [])
        add(f"{order}_pe", ["int32"])
        add(f"{order}_pe_qp", _PE)
    add("barrier_all_thread", [])
    add("barrier_all_block", [])
    for scope in _SCOPES:
        for of in ("mem", "_uint32", "_uint64", "_float", "_double"):
            for move in (f"put{of}_nbi", f"get{of}_nbi", f"get{of}"):
                add(f"{move}_{scope}", [_ADDRESS, _ADDRESS, _COUNT, *_PE])  # destination, source
        # destination, source, bytes, the signal's address, its value and what it does
        add(f"putmem_nbi_signal_{scope}", [_ADDRESS, _ADDRESS, _COUNT, _ADDRESS, "uint64", "int32", *_PE])
    _add_words(add)
    return table


def _add_words(add: _Add) -> None:
    add("put_size_imm_nbi_thread", [_ADDRESS, _ADDRESS, _COUNT, *_PE])  # the value is at the second address
    values: dict[str, Type] = {"int": "int32", "float": "float32", "double": "float64"}
    integers: tuple[Type, ...] = ("int32", "int64", "uint32", "uint64")
    values.update({of: of for of in integers})
    for name, of in values.items():
        add(f"{name}_p", [_ADDRESS, of, *_PE])
    add("atomic_size_nonfetch_thread", [_ADDRESS, _ADDRESS, _COUNT, "int32", *_PE])
    atomics: tuple[Type, ...] = ("uint32", "uint64", "int64")
    for of in atomics:
        add(f"atomic_{of}_nonfetch_thread", [_ADDRESS, of, "int32", *_PE])  # value, operation
        add(f"atomic_{of}_fetch_thread", [_ADDRESS, of, of, "int32", *_PE], of)  # value, compare, operation
        add(f"{of}_atomic_add_thread", [_ADDRESS, of, *_PE])
        add(f"{of}_atomic_fetch_add_thread", [_ADDRESS, of, *_PE], of)
    for of in integers:
        add(f"{of}_wait_until_greater_than", [_ADDRESS, of], of)
        add(f"{of}_wait_until_equals", [_ADDRESS, of])


MORI_DEVICE_FUNCTIONS: dict[str, DeviceFunction] = _table()
"""The functions that kernels can call, by their names without ``mori_shmem_``.

The last word of a name says which threads make the call together: ``thread`` (each for itself),
``warp`` (all lanes, one operation) or ``block`` (all threads, one operation). Counts are elements
of the type in the name, or bytes for ``mem``."""
