# SPDX-License-Identifier: MIT
"""RDMA devices for tests: real ones if MORI_REQUIRE lists ``rdma``, else two emulated ones.

Emulated devices come from a libibverbs.so.1 made of sockets and threads;
native/verbs/verbstest/doc.go describes it. A test session compiles the library if needed, and loads
it into this process before any code looks for it. By default it has no device, like most machines.
A test that uses the fixture ``nic`` has emu0 and emu1. The processes that it starts have them, too,
and find the library through LD_LIBRARY_PATH::

    @pytest.mark.usefixtures("nic")                      # skipped without real or emulated devices
    def test_write() -> None:
        with nics.port_down(0):                          # skipped on real devices
            ...

A fixture with a wider scope than one test passes the environment ``child_env()`` to the processes
that it starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import emulated
from support import cannot

LIBRARY = "libibverbs.so.1"
COUNT = 2
VERBS = emulated.Library(
    "RDMA device",
    real="rdma",
    script="native/verbs/verbstest/testdata/emulator.sh",
    tools=("g++",),
    steering=(
        "FAKE_VERBS",
        "FAKE_VERBS_LIMITS",
        "FAKE_VERBS_SEED",
        "FAKE_VERBS_TIMEOUT_MS",
        "FAKE_VERBS_RNR_MS",
        "FAKE_VERBS_PEERMEM",
    ),
)


def real() -> bool:
    """Tell whether tests run on real devices, and nothing is emulated. Devices of soft-RoCE are real."""
    return VERBS.real()


def start() -> None:
    """Load the emulated library into this process, unless tests run on real devices."""
    if real() or VERBS.loaded is not None:
        return
    os.environ["FAKE_VERBS_COUNT"] = "0"
    VERBS.start(LIBRARY)
    if VERBS.loaded is not None:
        VERBS.loaded.fake_verbs_bytes.restype = ctypes.c_uint64


def child_env() -> dict[str, str]:
    """Return the variables with which this process has the devices of the tests, and those that it starts have them."""
    return VERBS.child_env(FAKE_VERBS_COUNT=str(COUNT))


def devices() -> list[str]:
    """Return the names of the devices that this process has."""
    library = VERBS.loaded
    if library is None:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return []
    library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    library.ibv_get_device_name.restype = ctypes.c_char_p
    library.ibv_get_device_name.argtypes = [ctypes.c_void_p]
    n = ctypes.c_int()
    found = library.ibv_get_device_list(ctypes.byref(n))
    if not found:
        return []
    names = [library.ibv_get_device_name(found[i]).decode() for i in range(n.value)]
    library.ibv_free_device_list(found)
    return names


def need(count: int = 1) -> None:
    """Skip the test, or fail it, where there are fewer devices than it needs."""
    if not real():
        if VERBS.loaded is None:
            cannot("rdma", VERBS.why_not)
        return
    found = devices()
    if len(found) < count:
        cannot("rdma", f"there are {len(found)} RDMA devices, and {count} are needed")


def need_emulated() -> None:
    """Skip the test where the devices are real: it does what only emulated ones can be made to."""
    VERBS.need_emulated()
    need()


@contextlib.contextmanager
def port_down(device: int) -> Iterator[None]:
    """Take the link of emu0 or emu1 away, for this process, until the block ends."""
    with _told("port", device, 0, 1):
        yield


@contextlib.contextmanager
def removed(device: int) -> Iterator[None]:
    """Take a device out until the block ends. What was open of it is lost for good."""
    with _told("remove", device, 1, 0):
        yield


@contextlib.contextmanager
def hold(device: int) -> Iterator[None]:
    """Have nothing move on a device of this process, and nothing time out, until the block ends."""
    with _told("hold", device, 1, 0):
        yield


@contextlib.contextmanager
def _told(what: str, device: int, on: int, off: int) -> Iterator[None]:
    need_emulated()
    call = getattr(VERBS.loaded, f"fake_verbs_{what}")
    call(device, on)
    try:
        yield
    finally:
        call(device, off)


def fail_next(op: int, status: int) -> None:
    """Have the next work request with an opcode of ``enum ibv_wr_opcode`` end with a status, without being done."""
    need_emulated()
    VERBS.loaded.fake_verbs_fail_next(op, status)


def bytes_done(device: int) -> int:
    """Return the bytes of this process's work requests that a device has done."""
    need_emulated()
    return int(VERBS.loaded.fake_verbs_bytes(device))


@contextlib.contextmanager
def failing(calls: str) -> Iterator[None]:
    """Have calls of the emulated library answer errnos, such as ``"ibv_reg_mr=12,ibv_create_qp=22"``."""
    need_emulated()
    with VERBS.steered(FAKE_VERBS=calls):
        yield


@contextlib.contextmanager
def limits(**values: int) -> Iterator[None]:
    """Change limits of the devices, by their names: ``limits(max_mr_size=65536, max_qp_wr=16)``."""
    need_emulated()
    with VERBS.steered(FAKE_VERBS_LIMITS=",".join(f"{name}={value}" for name, value in values.items())):
        yield


@contextlib.contextmanager
def delays(seed: int) -> Iterator[None]:
    """Have all that devices do begin after random delays, so that a wait which is missing shows."""
    need_emulated()
    with VERBS.steered(FAKE_VERBS_SEED=str(seed)):
        yield
