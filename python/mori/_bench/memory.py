# SPDX-License-Identifier: MIT
"""Page-backed buffers and a byte pattern that any process can recompute.

A pattern cuts a buffer into granules. The bytes of granule ``i`` are a slice of one seeded random text, starting at an
offset that no other granule shares, so a granule that lands in a wrong place, or only half of it, is found by a plain
memory compare.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_libc.memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_libc.memset.restype = _libc.memmove.restype = _libc.memcpy.restype = ctypes.c_void_p

# Odd, so that i * _STRIDE modulo a power of two visits every offset once; not near a multiple of a page.
_STRIDE = 40503
_MIN_OFFSETS = 1 << 20


class Span:
    """Memory of this process that somebody else keeps: `size` bytes at integer address `address`."""

    def __init__(self, address: int, size: int) -> None:
        if size <= 0:
            raise ValueError(f"a region needs at least one byte, got {size}")
        self.address, self.size = address, size

    def wipe(self, offset: int = 0, size: int | None = None) -> None:
        """Writes zeros, which also makes the pages present."""
        size = self.size - offset if size is None else size
        self.check_range(offset, size)
        _libc.memset(self.address + offset, 0, size)

    def bytes(self, offset: int, size: int) -> bytes:
        """A copy of what is there now."""
        self.check_range(offset, size)
        return ctypes.string_at(self.address + offset, size)

    def copy_to(self, address: int, size: int) -> None:
        """One memcpy of the first `size` bytes to somewhere else in this process."""
        self.check_range(0, size)
        _libc.memcpy(address, self.address, size)

    def check_range(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"bytes {offset}..{offset + size} lie outside a region of {self.size} bytes")


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
        """The bytes as a writable view; it must not outlive the region."""
        return memoryview(self._map)


class Pattern:
    """The bytes of granules 0..count-1, each `granule` bytes long, from `seed` alone."""

    def __init__(self, seed: int, granule: int, count: int) -> None:
        if granule <= 0 or count <= 0:
            raise ValueError(f"a pattern needs a granule and a count above 0, got {granule} and {count}")
        self.granule, self.count = granule, count
        self._offsets = max(_MIN_OFFSETS, 1 << (count - 1).bit_length())
        self._text = ctypes.create_string_buffer(random.Random(seed).randbytes(self._offsets + granule))
        self._base = ctypes.addressof(self._text)
        self._zeros = ctypes.create_string_buffer(granule)

    def _address(self, index: int) -> int:
        return self._base + index * _STRIDE % self._offsets

    def fill(self, region: Span, granules: Iterable[tuple[int, int]]) -> None:
        """Writes granule `index` at `offset`, for each pair (offset, index)."""
        for offset, index in granules:
            region.check_range(offset, self.granule)
            _libc.memmove(region.address + offset, self._address(index), self.granule)

    def wrong(self, region: Span, granules: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """The pairs (offset, index) at which the region does not hold the whole of granule `index`."""
        bad = []
        for offset, index in granules:
            region.check_range(offset, self.granule)
            if _libc.memcmp(region.address + offset, self._address(index), self.granule):
                bad.append((offset, index))
        return bad

    def expected(self, offset: int, size: int) -> bytes:
        """The bytes at a place of a buffer that holds granule i at offset i * granule. It may not cross a granule."""
        index, start = divmod(offset, self.granule)
        if start + size > self.granule:
            raise ValueError(f"bytes {offset}..{offset + size} cross a granule of {self.granule} bytes")
        return ctypes.string_at(self._address(index) + start, size)

    def touched(self, region: Span, offsets: Iterable[int]) -> list[int]:
        """The offsets at which a granule is not all zero."""
        zeros = ctypes.addressof(self._zeros)
        bad = []
        for offset in offsets:
            region.check_range(offset, self.granule)
            if _libc.memcmp(region.address + offset, zeros, self.granule):
                bad.append(offset)
        return bad


def available_bytes() -> int:
    """Memory that can be taken without swapping, or 0 when the system does not tell. A cgroup limit counts."""
    free = 0
    try:
        with open("/proc/meminfo", encoding="ascii") as info:
            for line in info:
                if line.startswith("MemAvailable:"):
                    free = int(line.split()[1]) * 1024
    except OSError:
        return 0
    return min(free, _cgroup_room()) if free else 0


def _cgroup_room() -> int:
    for limit_path, used_path in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit_path, encoding="ascii") as limit, open(used_path, encoding="ascii") as used:
                text = limit.read().strip()
                if text != "max":
                    return max(0, int(text) - int(used.read()))
        except (OSError, ValueError):
            continue
    return 1 << 62


def resident_bytes() -> int:
    """Memory of this process that is present now."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
