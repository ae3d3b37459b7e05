#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The names of the device's symmetric memory, built from their grammar, and a kernel that calls each of them.

    python device_names.py [words] > names.cpp     with words, no copies: they are much code
"""

from __future__ import annotations

import sys

INTEGERS = {
    "Uint8": "uint8_t", "Int8": "int8_t", "Schar": "signed char", "Uint16": "uint16_t", "Int16": "int16_t",
    "Uint32": "uint32_t", "Int32": "int32_t", "Uint64": "uint64_t", "Int64": "int64_t",
}
NUMBERS = {**INTEGERS, "Float": "float", "Double": "double"}
# What atomic operations and waits take besides.
WORDS = {**INTEGERS, "Long": "long", "Ulong": "unsigned long"}
SCOPES = ("Thread", "Warp", "Block")
SMALL_SCOPES = ("Thread", "Warp")

# A call is a name, its template's arguments and its own. MEMORY stands for a symmetric address, of the type or by an
# object and an offset: each such call is made in both ways.
MEMORY = "@"
Call = tuple[str, str]


def moves() -> list[Call]:
    """Put, get and put with a signal."""
    calls = []
    for scope in SCOPES:
        for name, of in {"Mem": "char", "Type": "uint16_t", **NUMBERS}.items():
            both = f"{MEMORY}{of}, {MEMORY}{of}, count"
            two, signal = f"{both}, pe", f"{both}, {MEMORY}uint64_t, count, AMO_SIGNAL_ADD, pe"
            calls += [(f"ShmemPut{name}Nbi{scope}", two), (f"ShmemGet{name}Nbi{scope}", two)]
            calls += [(f"ShmemGet{name}{scope}", two), (f"ShmemPut{name}NbiSignal{scope}", signal)]
    return calls


def words() -> list[Call]:
    """Values from registers, atomic operations and waits."""
    calls = []
    for scope in (*SMALL_SCOPES, ""):
        calls += [(f"ShmemPutTypeImmNbi{scope}", f"{MEMORY}uint16_t, uint16_t(1), pe")]
        calls += [(f"ShmemAtomicTypeNonFetch{scope}", f"{MEMORY}uint16_t, uint16_t(1), AMO_OR, pe")]
        calls += [(f"ShmemAtomicTypeFetch{scope}", f"{MEMORY}uint16_t, uint16_t(1), uint16_t(2), AMO_SWAP, pe")]
    for scope in SMALL_SCOPES:
        calls += [(f"ShmemPutSizeImmNbi{scope}", f"{MEMORY}char, &count, 8, pe")]
        calls += [(f"ShmemAtomicSizeNonFetch{scope}", f"{MEMORY}char, &count, 8, AMO_ADD, pe")]
        for name, of in WORDS.items():
            one, two = f"({of})1", f"({of})2"
            if name in INTEGERS:
                calls += [(f"ShmemPut{name}ImmNbi{scope}", f"{MEMORY}{of}, {one}, pe")]
            calls += [(f"ShmemAtomic{name}NonFetch{scope}", f"{MEMORY}{of}, {one}, AMO_XOR, pe")]
            calls += [(f"ShmemAtomic{name}Fetch{scope}", f"{MEMORY}{of}, {one}, {two}, AMO_COMPARE_SWAP, pe")]
            calls += [(f"Shmem{name}AtomicAdd{scope}", f"{MEMORY}{of}, {one}, pe")]
            calls += [(f"Shmem{name}AtomicFetchAdd{scope}", f"{MEMORY}{of}, {one}, pe")]
    for name, of in WORDS.items():
        calls += [(f"Shmem{name}WaitUntil{how}", f"({of}*)heap, ({of})1") for how in ("Equals", "GreaterThan")]
    return calls


def others() -> list[Call]:
    """Who and where, order, barriers."""
    calls = [("ShmemMyPe", ""), ("ShmemNPes", "")]
    calls += [("ShmemPtrP2p", "uint64_t(heap), pe"), ("ShmemPtrP2p", "uint64_t(heap), 0, pe")]
    calls += [("ShmemPtrP2p", "object, 8, pe")]
    for order in ("Quiet", "Fence"):
        calls += [(f"Shmem{order}Thread", arguments) for arguments in ("", "pe", "pe, 1", "pe, object")]
    for scope in ("Thread", "Block"):
        calls += [(f"ShmemBarrierAll{scope}", ""), (f"ShmemInternalBarrier{scope}", "")]
    return calls


def spelled(arguments: str, by_object: bool) -> str:
    """The arguments with their addresses: elements of a pointer, or an object and an offset."""
    out = []
    for argument in arguments.split(", "):
        if not argument.startswith(MEMORY):
            out.append(argument)
        else:
            out.append("object, 4" if by_object else f"({argument[1:]}*)heap")
    return ", ".join(out)


def statements(calls: list[Call]) -> list[str]:
    """Every call in each of its ways, with and without the queue."""
    out = []
    for name, arguments in calls:
        if MEMORY not in arguments:
            out.append(f"{name}({arguments});")
            continue
        # A generic name has its type from a pointer; with an object it is said.
        kind = "<uint16_t>" if "Type" in name else ""
        out.append(f"{name}{kind}({spelled(arguments, False)});")
        out.append(f"{name}{kind}({spelled(arguments, True)}, 3);")
        if "Signal" in name:
            each = "<uint16_t, false>" if kind else "<false>"
            out.append(f"{name}{each}({spelled(arguments, False)}, 3);")
            out.append(f"{name}{each}({spelled(arguments, True)});")
    return out


def source(calls: list[Call] | None = None) -> str:
    """A translation unit with a kernel for each call."""
    lines = ['#include "mori/shmem/device.hpp"', "", "using namespace mori::shmem;", ""]
    for i, statement in enumerate(statements(moves() + words() + others() if calls is None else calls)):
        lines.append(f'extern "C" MORI_DEVICE_KERNEL(64) void call{i}(')
        lines += ["    [[maybe_unused]] char* heap, [[maybe_unused]] SymmetricObject object,"]
        lines += ["    [[maybe_unused]] uint64_t count, [[maybe_unused]] int pe) {", f"    {statement}", "}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(source(words() + others() if sys.argv[1:] == ["words"] else None), end="")
