# SPDX-License-Identifier: MIT
"""Transfers of memory that was taken away, with Python's faulthandler as the last to take SIGSEGV."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, faulthandler, mmap, sys, time
from mori.io import BackendType, IOEngine, IOEngineConfig, MemoryLocationType, StatusCode

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
SIZE = 4 << 20

def memory():
    return libc.mmap(None, SIZE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)

backend, gone = BackendType[sys.argv[1]], sys.argv[2]
a, b = IOEngine("a", IOEngineConfig("127.0.0.1", 0)), IOEngine("b", IOEngineConfig("127.0.0.1", 0))
for engine in (a, b):
    engine.create_backend(backend)
a.register_remote_engine(b.get_engine_desc())
b.register_remote_engine(a.get_engine_desc())
faulthandler.enable()
here, there = memory(), memory()
session = a.create_session(a.register_memory(here, SIZE, -1, MemoryLocationType.CPU),
                           b.register_memory(there, SIZE, -1, MemoryLocationType.CPU))
def run(move, size):
    status = move(0, 0, size, session.allocate_transfer_uid())
    start = time.monotonic()
    code = status.WaitFor(20_000)
    assert time.monotonic() - start < 15, "it was retried"
    return code, status.Message()

assert run(session.write, SIZE)[0] is StatusCode.SUCCESS
assert libc.mprotect(here if gone == "local" else there, SIZE, 0) == 0
for size in (8, 64 << 10, SIZE):
    for move in (session.write, session.read):
        code, text = run(move, size)
        assert code is StatusCode.ERR_BAD_ADDRESS, (size, code, text)
        assert ("local buffer" in text) == (gone == "local"), text
print("survived")
"""


@pytest.mark.parametrize("gone", ["local", "target"])
@pytest.mark.parametrize("backend", ["RDMA", "TCP"])
def test_memory_taken_away_within_a_process(backend: str, gone: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program), backend, gone], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "survived" in done.stdout  # among log lines
