# SPDX-License-Identifier: MIT
"""Processes that reach their limit of threads or descriptors: an error, and recovery afterwards."""

from __future__ import annotations

import os

import pytest

from support import run_script

# A separate user, so that only this process's threads count. The saved user id allows the way back.
THREADS = """
import os, resource, threading
import mori, mori.io, mori.shmem
from mori.io import BackendType, BusyError, IOEngine, IOEngineConfig

def leave(threads):
    if os.geteuid() == 0:
        os.setresuid(54321, 54321, 0)
    had = len(os.listdir("/proc/self/task")) if os.getresuid()[2] == 0 else 1
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (had + threads, hard))
    return soft, hard

def starts_thread():
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return False
    return True

def restore(limits):
    if os.getresuid()[2] == 0:
        os.setresuid(0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NPROC, limits)

def refused(call, *text):
    try:
        call()
    except BusyError as err:
        assert all(word in str(err) for word in ("threads", "ulimit -u", *text)), err
    else:
        raise AssertionError("no error")

def engine():
    return IOEngine("a", IOEngineConfig(host="127.0.0.1", port=0))
"""

NO_RUNTIME = """
limits = leave(0)
if starts_thread():
    print("unlimited")
    raise SystemExit
refused(engine, "native runtime")
restore(limits)
with engine() as made:
    made.create_backend(BackendType.RDMA)
print("works")
"""

NO_BACKEND = """
made = engine()
limits = leave(4)
for kind in (BackendType.RDMA, BackendType.TCP):
    refused(lambda: made.create_backend(kind), "create backend", kind.name)
refused(lambda: mori.shmem.shmem_init(), "shmem")
restore(limits)
made.create_backend(BackendType.RDMA)
made.close()
mori.shmem.shmem_init()
mori.shmem.shmem_finalize()
print("works")
"""


def test_no_threads_for_the_runtime() -> None:
    printed = run_script(THREADS + NO_RUNTIME)
    if "unlimited" in printed:
        pytest.skip("no limit on threads holds for this user")
    assert "works" in printed


def test_no_threads_for_a_backend() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be a user of whom no other process counts")
    assert "works" in run_script(THREADS + NO_BACKEND)


DESCRIPTORS = """
import os, resource
import mori, mori.io
from mori.io import BackendType, BusyError, IOEngine, IOEngineConfig

mori._core.fast()
null = os.open("/dev/null", os.O_RDONLY)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))

def count():
    return len(os.listdir("/proc/self/fd"))

def short(left, call):
    taken = []
    try:
        while True:
            taken.append(os.dup(null))
    except OSError:
        pass
    for _ in range(left):
        os.close(taken.pop())
    try:
        call()
    except BusyError as err:
        assert "descriptors" in str(err) and "ulimit -n" in str(err), err
    else:
        raise AssertionError("no error")
    finally:
        for fd in taken:
            os.close(fd)

def engine():
    return IOEngine("a", IOEngineConfig(host="127.0.0.1", port=0))

for left in range(4):
    short(left, engine)
with engine() as first:
    node = first.get_engine_desc().node_id
for left in range(8):
    made = engine()
    before = count()
    for kind in (BackendType.RDMA, BackendType.TCP):
        short(left, lambda: made.create_backend(kind))
    assert count() == before, (left, count(), before)
    made.create_backend(BackendType.RDMA)
    assert made.get_engine_desc().node_id == node
    made.close()
    assert count() <= before, (left, count(), before)
print("works")
"""


def test_no_descriptors() -> None:
    assert "works" in run_script(DESCRIPTORS)
