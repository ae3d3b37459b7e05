# SPDX-License-Identifier: MIT
"""GPUs for tests: real ones if MORI_REQUIRE lists ``gpu``, else two emulated ones.

Emulated GPUs come from a driver, libcuda.so.1, whose devices are host memory and threads;
native/gpu/gputest/doc.go describes it. A test session compiles the driver if needed, and loads it
into this process before any code looks for a driver. So all tests in this process see GPUs. Child
processes see none, unless the test uses the fixture ``gpu``: then they find the driver through
LD_LIBRARY_PATH::

    def test_copy(gpu: None) -> None:                     # skipped without real or emulated GPUs

    def test_write(memory: Memory) -> None:               # runs twice: on host memory, and on a GPU
        buffer = memory.alloc(4096)
        desc = engine.register_memory(*buffer.span)
        buffer.write(b"hello")
        assert buffer.read(5) == b"hello"

With MORI_EMULATE=hip in the environment, the tests run on emulated AMD GPUs.

A fixture with a wider scope than one test passes the environment ``child_env()`` to the processes
that it starts. A fixture that decides at run time that it needs a GPU calls
``request.getfixturevalue("gpu_env")``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import emulated
from mori.io import MemoryLocationType
from mori.tensor_utils import buffer_span
from support import cannot

LIBRARIES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so.6"}
DRIVER = emulated.Library(
    "GPU",
    real="gpu",
    script="native/gpu/testdata/emulator.sh",
    tools=("gcc", "g++"),
    steering=(
        "FAKE_GPU",
        "FAKE_GPU_BYTES",
        "FAKE_GPU_COUNT",
        "FAKE_GPU_SEED",
        "FAKE_GPU_IDLE",
        "FAKE_GPU_LATE",
        "FAKE_GPU_DRIVER",
        "FAKE_GPU_ARCH",
    ),
)


def real() -> bool:
    """Tell whether tests run on real GPUs, and nothing is emulated."""
    return DRIVER.real()


def start() -> None:
    """Load the emulated driver into this process, unless tests run on real GPUs."""
    vendor = os.environ.get("MORI_EMULATE") or "cuda"
    DRIVER.start(LIBRARIES[vendor], vendor)


def child_env() -> dict[str, str]:
    """Return the variables with which a process that is started finds the GPUs of the tests."""
    return DRIVER.child_env()


def need(count: int = 1) -> None:
    """Skip the test, or fail it, where there are fewer GPUs."""
    from mori import device

    if not real() and DRIVER.loaded is None:
        cannot("gpu", DRIVER.why_not)
    found = device.devices()
    if not found:
        cannot("gpu", device.why_no_device())
    if len(found) < count:
        cannot("gpus", f"there are {len(found)} GPUs, and {count} are needed")


def need_emulated() -> None:
    """Skip the test where the GPU is real: it does what only an emulated one can be made to."""
    DRIVER.need_emulated()
    need()


def need_cuda_torch() -> Any:
    """Return torch; skip the test, or fail it, without a torch that sees a real GPU."""
    import pytest

    if not real():
        pytest.skip("torch.cuda needs a real GPU: set MORI_REQUIRE=gpu where there is one")
    try:
        import torch
    except ImportError:
        cannot("torch", "torch is not installed")
    if not torch.cuda.is_available():
        cannot("gpu", "torch sees no GPU")
    return torch


@contextlib.contextmanager
def hold() -> Iterator[None]:
    """Keep work on the emulated GPUs of this process that has not begun from beginning, until the block ends."""
    need_emulated()
    DRIVER.loaded.fake_gpu_hold(1)
    try:
        yield
    finally:
        DRIVER.loaded.fake_gpu_hold(0)


@contextlib.contextmanager
def failing(calls: str) -> Iterator[None]:
    """Have calls of the emulated driver answer codes, such as ``"cuMemAlloc_v2=2,cuStreamQuery=719"``."""
    need_emulated()
    with DRIVER.steered(FAKE_GPU=calls):
        yield


@contextlib.contextmanager
def delays(seed: int) -> Iterator[None]:
    """Have work on the emulated GPUs begin after random delays, so that a wait which is missing shows."""
    need_emulated()
    with DRIVER.steered(FAKE_GPU_SEED=str(seed)):
        yield


class Buffer:
    """Memory of either kind.

    Attributes:
        ptr: its address.
        nbytes: its size.
        device: the GPU that it is of, -1 for host memory.
        loc: which kind it is.
        owner: what keeps it: a bytearray, or a ``mori.device.DeviceMemory``.
    """

    ptr: int
    nbytes: int
    device = -1
    loc = MemoryLocationType.CPU
    owner: Any

    @property
    def span(self) -> tuple[int, int, int, MemoryLocationType]:
        """The arguments of ``IOEngine.register_memory``."""
        return self.ptr, self.nbytes, self.device, self.loc

    def write(self, data: bytes, offset: int = 0) -> None:
        raise NotImplementedError

    def read(self, nbytes: int | None = None, offset: int = 0) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        """Free it; what was registered of it must not be by now."""

    def __bytes__(self) -> bytes:
        return self.read()

    def __len__(self) -> int:
        return self.nbytes


class HostBuffer(Buffer):
    def __init__(self, nbytes: int) -> None:
        self.owner = bytearray(nbytes)
        self.ptr, self.nbytes = buffer_span(self.owner).ptr, nbytes

    def write(self, data: bytes, offset: int = 0) -> None:
        assert 0 <= offset <= offset + len(data) <= self.nbytes
        self.owner[offset : offset + len(data)] = data

    def read(self, nbytes: int | None = None, offset: int = 0) -> bytes:
        return bytes(self.owner[offset : self.nbytes if nbytes is None else offset + nbytes])


class GpuBuffer(Buffer):
    loc = MemoryLocationType.GPU

    def __init__(self, nbytes: int, device: int = 0) -> None:
        from mori.device import DeviceMemory

        self.owner = DeviceMemory(nbytes, device=device)
        self.ptr, self.nbytes, self.device = self.owner.ptr, nbytes, device
        self.owner.fill(0)

    def write(self, data: bytes, offset: int = 0) -> None:
        self.owner.write(data, offset)

    def read(self, nbytes: int | None = None, offset: int = 0) -> bytes:
        return self.owner.read(nbytes, offset)

    def close(self) -> None:
        self.owner.close()


class Memory:
    """Gives buffers of one kind, ``"host"`` or ``"gpu"``, full of zeros. It may be pickled: peers make one, too."""

    def __init__(self, kind: str = "host", device: int = 0) -> None:
        assert kind in ("host", "gpu")
        self.kind, self.device = kind, device
        self._given: list[Buffer] = []

    def alloc(self, content: int | bytes, device: int | None = None) -> Buffer:
        """Return a buffer of a size, or with these bytes, on this GPU where it is of one."""
        size = content if isinstance(content, int) else len(content)
        gpu = self.device if device is None else device
        buffer = HostBuffer(size) if self.kind == "host" else GpuBuffer(size, gpu)
        self._given.append(buffer)
        if not isinstance(content, int):
            buffer.write(content)
        return buffer

    def close(self) -> None:
        while self._given:
            self._given.pop().close()

    def __getstate__(self) -> tuple[str, int]:
        return self.kind, self.device

    def __setstate__(self, state: tuple[str, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]


def fixture_wants(request: Any) -> bool:
    """Tell whether the test of a fixture's request uses a GPU, and so do the processes that it starts."""
    params = getattr(getattr(request.node, "callspec", None), "params", {})
    return "gpu" in request.fixturenames or params.get("memory") == "gpu"
