# SPDX-License-Identifier: MIT
"""What an installed wheel must do, run by the Python of an empty virtual environment:

    python -I tests/wheel_smoke.py

It uses nothing but the standard library and the wheel, and prints one line per check.
"""

import ctypes
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

SIZE = 1 << 20
DEADLINE_S = 60


def check_import() -> None:
    """Importing starts nothing, and comes from the wheel."""
    import mori
    import mori.io
    from mori.cpp import TransferStatus

    assert TransferStatus is not None
    where = Path(mori.__file__).resolve()
    assert where.is_relative_to(Path(sysconfig.get_paths()["purelib"]).resolve()), where
    assert mori.__version__ != "unknown"
    assert "_moricore" not in Path("/proc/self/maps").read_text(), "import loaded the extension"
    assert len(os.listdir("/proc/self/task")) == 1, "import started a thread"
    for name in ("torch", "numpy"):
        assert importlib.util.find_spec(name) is None, f"{name} is here: the environment is not empty"
    print(f"import mori {mori.__version__} from {where.parent}: ok")


def check_types() -> None:
    """Type checkers find what they need."""
    import mori

    here = Path(mori.__file__).parent
    for name in ("py.typed", "_native/_moricore.pyi", "_native/_fast.pyi"):
        assert (here / name).exists(), f"{name} is not in the wheel"
    assert len(list((here / "_native").glob("*.so"))) == 1, "one extension is expected"
    print("types: ok")


def check_headers() -> None:
    """Kernels find what they include."""
    import mori

    folder = Path(mori.get_include())
    assert folder.is_relative_to(Path(mori.__file__).parent), folder
    for name in ("device/atomic.hpp", "shmem/device.hpp", "nic/device.hpp", "proxy/device.hpp"):
        assert (folder / "mori" / name).exists(), f"{name} is not in the wheel"
    print("headers: ok")


def check_command() -> None:
    """The console script and the module are the same command."""
    script = Path(sys.executable).with_name("mori")
    for command in ([str(script)], [sys.executable, "-I", "-m", "mori"]):
        done = subprocess.run([*command, "version"], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        assert done.stdout.strip(), f"{command} version printed nothing"
    print(f"mori version: {done.stdout.splitlines()[0]}")


def new_engine(key: str):
    """An engine that listens on loopback."""
    from mori.io import BackendType, IOEngine, IOEngineConfig

    engine = IOEngine(key, IOEngineConfig("127.0.0.1", 0))
    engine.create_backend(BackendType.RDMA)
    assert engine.get_engine_desc().port > 0
    return engine


def register(engine, buffer: bytearray):
    """Register host memory; the caller keeps buffer alive."""
    from mori.io import MemoryLocationType

    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    return engine.register_memory(address, len(buffer), -1, MemoryLocationType.CPU)


def serve() -> None:
    """The far process: offer zeroed memory, tell at each line of input whether it holds the pattern, end at the end."""
    engine = new_engine("far")
    buffer = bytearray(SIZE)
    print(engine.get_engine_desc().pack().hex(), register(engine, buffer).pack().hex(), flush=True)
    for _ in sys.stdin:
        print("same" if bytes(buffer) == pattern() else "different", flush=True)


def pattern() -> bytes:
    """SIZE bytes whose pages all differ."""
    return b"".join(page.to_bytes(4, "little") * 1024 for page in range(SIZE // 4096))


def transfer(submit, uid: int) -> None:
    """Move the whole buffer and wait for success."""
    from mori.io import StatusCode

    status = submit(0, 0, SIZE, uid)
    assert status.WaitFor(DEADLINE_S * 1000) == StatusCode.SUCCESS, status.Message()


def check_transfer() -> None:
    """One write to another process, verified there, and one read back."""
    from mori.io import EngineDesc, MemoryDesc

    command = [sys.executable, "-I", __file__, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as far:
        try:
            packed = far.stdout.readline().split()
            assert len(packed) == 2, "the far process ended early"
            engine = new_engine("near")
            engine.register_remote_engine(EngineDesc.unpack(bytes.fromhex(packed[0])))
            buffer = bytearray(pattern())
            local = register(engine, buffer)
            session = engine.create_session(local, MemoryDesc.unpack(bytes.fromhex(packed[1])))
            transfer(session.write, session.allocate_transfer_uid())
            far.stdin.write("look\n")
            assert far.stdout.readline().strip() == "same"
            buffer[:] = bytes(SIZE)
            transfer(session.read, session.allocate_transfer_uid())
            assert bytes(buffer) == pattern()
        finally:
            far.kill()
    print("write and read between two processes: ok")


def main() -> None:
    check_import()
    check_types()
    check_headers()
    check_command()
    check_transfer()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
