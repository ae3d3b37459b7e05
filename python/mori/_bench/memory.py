# SPDX-License-Identifier: MIT
"""Memory with contents that any process can recompute, so that each byte reveals where it belongs.

A granule is a slice of one pseudo-random text, and starts at an offset that is unique among 2^20
granules or more. A lost, doubled or misplaced granule therefore never compares equal.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from collections.abc import Iterable, Iterator, Mapping

from mori import device
from mori.device._copy import fill

_libc = ctypes.CDLL(None)
memcpy = _libc.memcpy
memcpy.restype = ctypes.c_void_p
_libc.memcmp.argtypes = memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

# Odd, so that i * _STRIDE modulo a power of two visits every offset once; not near a multiple of a
# page.
_STRIDE = 40503
_MIN_OFFSETS = 1 << 20
_SEED = 20_26
_CGROUP_FILES = (  # limit and usage, of version 2 and 1
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


class Span:
    """Memory of this process that another object owns: `size` bytes at the integer `address`."""

    def __init__(self, address: int, size: int) -> None:
        if size <= 0:
            raise ValueError(f"a region needs at least one byte, got {size}")
        self.address, self.size = address, size

    def wipe(self, offset: int = 0, size: int | None = None) -> None:
        """Write zeros, which also makes the pages present."""
        size = self.size - offset if size is None else size
        ctypes.memset(self.at(offset, size), 0, size)

    def bytes(self, offset: int, size: int) -> bytes:
        """Return a copy of the current contents."""
        return ctypes.string_at(self.at(offset, size), size)

    def at(self, offset: int, size: int) -> int:
        """Return the address of an offset. Raises ValueError unless size bytes follow it."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"bytes {offset}..{offset + size} lie outside a region of {self.size} bytes")
        return self.address + offset


class Region(Span):
    """Anonymous private memory whose pages are all present."""

    def __init__(self, size: int) -> None:
        super().__init__(0, size)
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._anchor)
        self.wipe()

    @property
    def view(self) -> memoryview:
        """The bytes as a writable view, which must not outlive the region."""
        return memoryview(self._map)


class Pattern:
    """The bytes of granules 0..count-1, each `granule` bytes long, made from `seed` alone."""

    def __init__(self, seed: int, granule: int, count: int) -> None:
        if granule <= 0 or count <= 0:
            raise ValueError(f"a pattern needs a granule and a count above 0, got {granule} and {count}")
        self.granule, self.count = granule, count
        self._offsets = max(_MIN_OFFSETS, 1 << (count - 1).bit_length())
        self._text = ctypes.create_string_buffer(random.Random(seed).randbytes(self._offsets + granule))
        self._zeros = ctypes.create_string_buffer(granule)

    def _address(self, index: int) -> int:
        return ctypes.addressof(self._text) + index * _STRIDE % self._offsets

    def fill(self, region: Span, granules: Iterable[tuple[int, int]]) -> None:
        """Write granule `index` at `offset`, for each pair (offset, index)."""
        for offset, index in granules:
            ctypes.memmove(region.at(offset, self.granule), self._address(index), self.granule)

    def wrong(
        self, region: Span, granules: Iterable[tuple[int, int]], size: int | None = None
    ) -> list[tuple[int, int]]:
        """Return the pairs (offset, index) at which the region lacks the first `size` bytes of the granule."""
        return [(at, i) for at, i in granules if self._differs(region, at, self._address(i), size)]

    def touched(self, region: Span, offsets: Iterable[int]) -> list[int]:
        """Return the offsets at which a granule is not all zero."""
        zeros = ctypes.addressof(self._zeros)
        return [offset for offset in offsets if self._differs(region, offset, zeros)]

    def _differs(self, region: Span, offset: int, address: int, size: int | None = None) -> bool:
        size = min(self.granule, size or self.granule)
        return bool(_libc.memcmp(region.at(offset, size), address, size))


class Blocks:
    """`count` blocks of `size` bytes at an address. Block i of a source holds granule i of a pattern.

    Blocks of a GPU pass through `stage`, which is memory of the host.
    """

    def __init__(self, address: int, size: int, count: int, stage: Region | None = None) -> None:
        self.address, self.size, self.count, self._stage = address, size, count, stage
        self._pattern = Pattern(_SEED, size, count)

    def _portions(self) -> Iterator[tuple[int, Span]]:
        """Yield the first block of each portion that fits into the stage, and the portion's memory."""
        step = self._stage.size // self.size if self._stage else self.count
        for first in range(0, self.count, step):
            yield first, Span(self.address + first * self.size, min(step, self.count - first) * self.size)

    def fill(self) -> None:
        for first, there in self._portions():
            here = self._stage or there
            self._pattern.fill(here, ((at, first + at // self.size) for at in range(0, there.size, self.size)))
            if self._stage:
                device.copy(there.address, here.address, there.size)

    def wipe(self, offsets: Iterable[int] = (), size: int = 0) -> None:
        """Zero `size` bytes at the offsets; without offsets, or on a GPU, all bytes."""
        whole = Span(self.address, self.size * self.count)
        if self._stage:
            fill(device.lookup(self.address).device, self.address, 0, whole.size)
        elif offsets:
            for offset in offsets:
                whole.wipe(offset, size)
        else:
            whole.wipe()

    def wrong(self, size: int, holds: Mapping[int, int] | None = None) -> int:
        """Count the blocks whose first `size` bytes are not those of their granule.

        `holds` has the blocks to compare with the numbers of their granules. By default all hold their own.
        """
        wrong, holds = 0, holds or {i: i for i in range(self.count)}
        for first, there in self._portions():
            here = self._stage or there
            if self._stage:
                device.copy(here.address, there.address, there.size)
            blocks = range(first, first + there.size // self.size)
            pairs = (((i - first) * self.size, holds[i]) for i in blocks if i in holds)
            wrong += len(self._pattern.wrong(here, pairs, size))
        return wrong


def available_bytes() -> int:
    """Return the memory that is free without swapping, within the cgroup's limit; 0 if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as info:
            free = next((int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable:")), 0)
    except OSError:
        return 0
    for limit, used in _CGROUP_FILES:
        try:
            with open(f"/sys/fs/cgroup/{limit}") as most, open(f"/sys/fs/cgroup/{used}") as now:
                if (text := most.read().strip()) != "max":
                    return min(free, max(0, int(text) - int(now.read())))
        except (OSError, ValueError):
            continue
    return free


def resident_bytes() -> int:
    """Return the memory of this process that is present now."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
