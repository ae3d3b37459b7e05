# SPDX-License-Identifier: MIT
"""What the tests share: buffers with known bytes, engines, and peers that are processes of their own."""

from __future__ import annotations

import ctypes
import importlib.util
import multiprocessing
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mori.io import (
    BackendType,
    EngineDesc,
    IOEngine,
    IOEngineConfig,
    MemoryDesc,
    RdmaBackendConfig,
    StatusCode,
    TransferStatus,
    XgmiBackendConfig,
)
from mori.io._config import BackendConfig
from mori.tensor_utils import buffer_span

if TYPE_CHECKING:
    from gpus import Memory

WAIT_MS = 30_000
BACKENDS = [BackendType.RDMA, BackendType.TCP]


def cannot(need: str, reason: str) -> NoReturn:
    """Skip the test because ``need`` is not here, or fail it if MORI_REQUIRE has ``need`` in its list."""
    import pytest  # not at the top: peers load this file too

    if need in os.environ.get("MORI_REQUIRE", "").split(","):
        pytest.fail(f"MORI_REQUIRE has {need}, and {reason}")
    pytest.skip(reason)


def has_torch() -> bool:
    """Tell whether PyTorch is installed, without the second that importing it takes."""
    return importlib.util.find_spec("torch") is not None


def need_torch() -> None:
    """Skip the test, or fail it, where PyTorch is not installed."""
    if not has_torch():
        cannot("torch", "torch is not installed")


def need_mpi() -> str:
    """Return the path of mpirun; skip the test, or fail it, where it or mpi4py is not installed."""
    found = shutil.which("mpirun")
    if found is None:
        cannot("mpi", "mpirun is not installed")
    if importlib.util.find_spec("mpi4py") is None:
        cannot("mpi", "mpi4py is not installed")
    return found


def mpirun(ranks: int, *command: object, **environment: str) -> list[str]:
    """
    Run a command in some ranks and return what each of them printed, in their order.

    Each rank writes to a file of its own: mpirun passes on pieces of lines, and those of one rank end up in another's.
    """
    start = [need_mpi(), *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "-np", str(ranks)]
    with tempfile.TemporaryDirectory() as there:
        own = ["sh", "-c", 'exec "$@" >"$0/$OMPI_COMM_WORLD_RANK"', there]
        run = [*start, *own, *map(str, command)]
        env = {**os.environ, **environment}
        done = subprocess.run(run, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        said = [path.read_text() for path in sorted(Path(there).iterdir(), key=lambda path: int(path.name))]
    assert done.returncode == 0, "".join(said) + done.stdout + done.stderr
    return said


def pattern(size: int, seed: int = 1) -> bytes:
    """Return ``size`` reproducible bytes that differ from those of every other seed."""
    return random.Random(seed).randbytes(size)


def new_engine(
    key: str, backend: BackendType | None = BackendType.RDMA, config: BackendConfig | None = None, port: int = 0
) -> IOEngine:
    engine = IOEngine(key, IOEngineConfig("127.0.0.1", port))
    if backend is not None:
        engine.create_backend(backend, config)
    return engine


def introduce(*engines: IOEngine) -> None:
    """Make every engine know every other one."""
    for engine in engines:
        for other in engines:
            if other is not engine:
                engine.register_remote_engine(other.get_engine_desc())


class Region:
    """Memory registered with an engine: a bytearray, or what ``memory`` gives, from ``at`` on in an allocation."""

    def __init__(self, engine: IOEngine, content: bytes | int, memory: Memory | None = None, at: int = 0) -> None:
        if memory is None:
            self.buffer = bytearray(content)
            self.desc = engine.register_memory(*buffer_span(self.buffer))
            return
        self.at, self.size = at, content if isinstance(content, int) else len(content)
        self.memory = memory.alloc(at + self.size)
        if not isinstance(content, int):
            self.fill(content)
        ptr, _, device, loc = self.memory.span
        self.desc = engine.register_memory(ptr + at, self.size, device, loc)

    def __bytes__(self) -> bytes:
        return bytes(self.buffer) if hasattr(self, "buffer") else self.memory.read(self.size, self.at)

    def fill(self, content: bytes) -> None:
        """Put other bytes there."""
        if hasattr(self, "buffer"):
            self.buffer[:] = content
        else:
            self.memory.write(content, self.at)


def stick(desc: MemoryDesc) -> None:
    """Take the whole pages of a memory of this process away, and make every access to them wait without end.

    Raises:
        OSError: there is no userfaultfd here, or no right to it.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        return result

    page = os.sysconf("SC_PAGE_SIZE")
    start, end = (desc.data + page - 1) // page * page, (desc.data + desc.size) // page * page
    number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
    fd = check(libc.syscall(number, os.O_CLOEXEC))
    u64 = ctypes.c_uint64
    check(libc.ioctl(fd, ctypes.c_ulong(0xC018AA3F), (u64 * 3)(0xAA, 0, 0)))  # UFFDIO_API
    check(libc.ioctl(fd, ctypes.c_ulong(0xC020AA00), (u64 * 4)(start, end - start, 1, 0)))  # UFFDIO_REGISTER
    check(libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 4))  # MADV_DONTNEED


def finish(status: TransferStatus, timeout_ms: int = WAIT_MS) -> StatusCode:
    """Wait for a transfer; running out of time is a failure of the test, not an answer."""
    code = status.WaitFor(timeout_ms)
    assert code != StatusCode.IN_PROGRESS, f"no end after {timeout_ms} ms"
    return code


def succeed(status: TransferStatus) -> None:
    code = finish(status)
    assert code == StatusCode.SUCCESS, f"{code}: {status.Message()}"


def eventually(check: Callable[[], Any], timeout: float = 30.0) -> Any:
    """Return the first true result of ``check``; fail if none comes in time."""
    deadline = time.monotonic() + timeout
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"not true within {timeout} s"
        time.sleep(0.005)


class _PeerSide:
    """The commands a peer process answers; each public method is one."""

    def __init__(self) -> None:
        self.engine: IOEngine | None = None
        self.regions: list[Region] = []
        self.statuses: list[TransferStatus] = []

    def start(self, key: str, backend: int, config: dict[str, Any]) -> bytes:
        kind = BackendType[BackendType(backend).name]  # the member itself
        settings = XgmiBackendConfig() if kind is BackendType.XGMI else RdmaBackendConfig()
        for name, value in config.items():
            setattr(settings, name, value)
        self.engine = new_engine(key, kind, settings)
        return self.engine.get_engine_desc().pack()

    def know(self, packed: bytes) -> None:
        self.engine.register_remote_engine(EngineDesc.unpack(packed))

    def register(self, content: bytes | int, memory: Memory | None = None, at: int = 0) -> tuple[int, bytes]:
        self.regions.append(Region(self.engine, content, memory, at))
        return len(self.regions) - 1, self.regions[-1].desc.pack()

    def deregister(self, index: int) -> None:
        self.engine.deregister_memory(self.regions[index].desc)

    def content(self, index: int) -> bytes:
        return bytes(self.regions[index])

    def stick(self, index: int) -> None:
        stick(self.regions[index].desc)

    def transfer(self, name: str, index: int, local: list, remote: bytes, remote_offs: list, sizes: list) -> int:
        """Run one engine-level batch and return its final code."""
        desc, uid = self.regions[index].desc, self.engine.allocate_transfer_uid()
        batch = getattr(self.engine, name)
        [status] = batch([desc], [local], [MemoryDesc.unpack(remote)], [remote_offs], [sizes], [uid])
        return int(finish(status))

    def pop(self, key: str, uid: int) -> int | None:
        status = self.engine.pop_inbound_transfer_status(key, uid)
        return None if status is None else int(status.Code())

    def inbound_tag(self, key: str, uid: int) -> str | None:
        return self.engine.inbound_tag(key, uid)

    def describe(self) -> dict[str, Any]:
        return self.engine.describe()


def _serve(pipe: Connection, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    side = _PeerSide()
    while True:
        try:
            name, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(side, name)(*args)))
        except Exception as err:
            pipe.send((False, f"{type(err).__name__}: {err}"))


class Peer:
    """An engine in a process of its own, driven by commands: the methods of ``_PeerSide``."""

    def __init__(
        self,
        key: str,
        backend: BackendType = BackendType.RDMA,
        method: str = "spawn",
        environment: dict[str, str] | None = None,
        **config: Any,
    ) -> None:
        context = multiprocessing.get_context(method)
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, environment or {}), daemon=True)
        self.process.start()
        theirs.close()
        self.key = key
        self.desc = EngineDesc.unpack(self.call("start", key, int(backend), config))

    def call(self, name: str, *args: Any) -> Any:
        self._pipe.send((name, args))
        assert self._pipe.poll(90), f"peer {self.key} did not answer {name}"
        fine, result = self._pipe.recv()
        assert fine, f"peer {self.key}: {name}: {result}"
        return result

    def register(self, content: bytes | int, memory: Memory | None = None, at: int = 0) -> tuple[int, MemoryDesc]:
        """Register memory of the peer's own, of the kind of ``memory``, from ``at`` on in an allocation."""
        index, packed = self.call("register", content, memory, at)
        return index, MemoryDesc.unpack(packed)

    def content(self, index: int) -> bytes:
        return self.call("content", index)

    def meet(self, engine: IOEngine) -> None:
        """Make the peer and ``engine`` know each other."""
        engine.register_remote_engine(self.desc)
        self.call("know", engine.get_engine_desc().pack())

    def pause(self) -> None:
        """Stop the process. Until all of its threads have stopped, which takes a while on busy cores, it may answer."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        state = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert state is not None
        assert state.si_code == os.CLD_STOPPED, f"peer {self.key} ended instead of stopping: {state}"

    def resume(self) -> None:
        """Continue the process after :meth:`pause`."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.join(10)

    def stop(self) -> None:
        self._pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.kill()


def run_script(code: str, timeout: float = 90, **environment: str) -> str:
    """Run a program in a fresh interpreter, where mori was never loaded, and return what it printed."""
    return run_program(code, timeout, **environment).stdout


def run_program(code: str, timeout: float = 90, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program like run_script, and return its standard output and standard error."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, *sys.path])
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result
