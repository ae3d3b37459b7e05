# SPDX-License-Identifier: MIT
"""register_memory refuses memory that the process may not read and write."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import pytest

from mori.io import IOEngine, IOEngineConfig, MemoryLocationType

PAGE = 4096
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def engine() -> Iterator[IOEngine]:
    made = IOEngine("register", IOEngineConfig())
    yield made
    made.close()


@pytest.fixture
def pages() -> Iterator[int]:
    """The address of 8 pages of one's own."""
    memory = mmap.mmap(-1, 8 * PAGE)
    view = (ctypes.c_char * (8 * PAGE)).from_buffer(memory)
    address = ctypes.addressof(view)
    yield address
    protect(address, 8, mmap.PROT_READ | mmap.PROT_WRITE)
    del view
    memory.close()


def protect(address: int, count: int, rights: int) -> None:
    assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(count * PAGE), rights) == 0


def register(engine: IOEngine, address: int, size: int) -> None:
    engine.register_memory(address, size, -1, MemoryLocationType.CPU)


@pytest.mark.parametrize("rights", [0, mmap.PROT_READ], ids=["none", "read-only"])
def test_protected_pages(engine: IOEngine, pages: int, rights: int) -> None:
    register(engine, pages, 8 * PAGE)
    protect(pages + 5 * PAGE, 1, rights)
    register(engine, pages, 5 * PAGE)
    with pytest.raises(Exception, match=f"{pages + 5 * PAGE:#x}"):
        register(engine, pages + 100, 7 * PAGE)


@pytest.mark.parametrize("address", [16, 0xFFFF888000000000])
def test_no_memory(engine: IOEngine, address: int) -> None:
    with pytest.raises(Exception, match=f"{address & ~(PAGE - 1):#x} is not mapped"):
        register(engine, address, 64)
