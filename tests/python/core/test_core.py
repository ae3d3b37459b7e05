# SPDX-License-Identifier: MIT
"""The door to the extension: what importing costs, errors, fork, signals, and the lazy package."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap

import pytest

import mori
from mori import _core, _errors
from mori.io import (
    BadStateError,
    BusyError,
    ConnectionFailedError,
    ForkError,
    InvalidArgumentError,
    MoriError,
    MoriTimeoutError,
    NotFoundError,
    UnsupportedError,
)
from support import run_program, run_script

STARTED = """
import os, sys, threading
def started():
    with open("/proc/self/maps") as maps:
        mapped = "_moricore" in maps.read()
    return mapped or len(os.listdir("/proc/self/task")) > 1 or any("_moricore" in name for name in sys.modules)
"""


class TestImport:
    @pytest.mark.parametrize(
        "statement",
        [
            "import mori",
            "import mori.io",
            "import mori.io.engine, mori.io.fabric_allocator, mori.io.fabric_copy_jit, mori.io.scatter_gather_jit",
            "from mori.cpp import TransferStatus",
            "import mori.cpp, mori.tensor_utils, mori.cli",
            "import mori; mori.io.IOEngineConfig('h', 1); mori.io.RdmaBackendConfig(); mori.io.XgmiBackendConfig()",
            "from mori.io import *; MemoryDesc().size; StatusCode(11); BackendType.RDMA",
            "import mori.io; mori.io.set_log_level('debug')",
        ],
    )
    def test_starts_nothing(self, statement: str) -> None:
        run_script(f"{STARTED}\n{statement}\nassert not started()")

    def test_needs_no_framework(self) -> None:
        code = """
import sys
for name in ("numpy", "torch", "jax"):
    sys.modules[name] = None
import mori.io, mori.cpp, mori.tensor_utils
from support import Region, new_engine, succeed
engine = new_engine("plain")
region = Region(engine, 64)
succeed(engine.write(region.desc, 0, region.desc, 32, 8, 0))
"""
        run_script(code)

    def test_first_engine_starts_it(self) -> None:
        code = """
import mori.io
assert not started()
engine = mori.io.IOEngine("k", mori.io.IOEngineConfig())
assert started()
"""
        run_script(STARTED + code)

    def test_star_import_has_the_contract_s_names(self) -> None:
        names = """IOEngine IOEngineSession TORCH_DEVICE_TYPE_MAP IOEngineConfig StatusCode BackendType EngineDesc
            MemoryDesc MemoryLocationType PollCqMode RdmaBackendConfig XgmiBackendConfig FabricBackendConfig
            fabric_alloc fabric_free set_log_level fabric_torch_allocator use_fabric_torch_allocator
            make_fabric_mem_pool fabric_mem_pool"""
        space: dict[str, object] = {}
        exec("from mori.io import *", space)
        assert set(names.split()) <= set(space)


class TestPackage:
    def test_version(self) -> None:
        assert isinstance(mori.__version__, str)
        assert mori.__version__

    def test_version_of_an_unbuilt_tree(self) -> None:
        code = "import sys; sys.modules['mori._version'] = None; import mori; print(mori.__version__)"
        assert run_script(code) == "unknown\n"

    def test_lazy_attributes(self) -> None:
        run_script("import sys, mori; assert 'mori.io' not in sys.modules; mori.io.IOEngine; mori.cpp.TransferStatus")

    @pytest.mark.parametrize("name", ["nonsense", "tensor_utils_", "IOEngine"])
    def test_other_names(self, name: str) -> None:
        with pytest.raises(AttributeError, match=name):
            getattr(mori, name)

    @pytest.mark.parametrize("name", ["ops", "jax", "shmem", "ir", "kernel_profiler", "ccl"])
    def test_parts_that_may_be_missing(self, name: str) -> None:
        if importlib.util.find_spec(f"mori.{name}"):
            assert getattr(mori, name).__name__ == f"mori.{name}"
        else:
            with pytest.raises(AttributeError, match=f"mori.{name}"):
                getattr(mori, name)

    def test_dir_lists_the_parts(self) -> None:
        assert {"io", "cpp", "__version__"} <= set(dir(mori))


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "kinds"),
        [
            ("E_ARG", (InvalidArgumentError, MoriError, ValueError)),
            ("E_TYPE", (TypeError,)),
            ("E_STATE", (BadStateError, MoriError)),
            ("E_NOTFOUND", (NotFoundError, MoriError)),
            ("E_NOTIMPL", (NotImplementedError,)),
            ("E_UNSUPPORTED", (UnsupportedError, MoriError)),
            ("E_TIMEOUT", (MoriTimeoutError, MoriError, TimeoutError)),
            ("E_CONN", (ConnectionFailedError, MoriError, ConnectionError)),
            ("E_FORK", (ForkError, MoriError)),
            ("E_AGAIN", (BusyError, MoriError)),
            ("E_INTERNAL", (MoriError,)),
        ],
    )
    def test_codes(self, code: str, kinds: tuple[type, ...]) -> None:
        error = _errors.from_native(RuntimeError(f"{code}|what happened | where"))
        assert type(error) is kinds[0]
        assert all(isinstance(error, kind) for kind in kinds)
        assert str(error) == "what happened | where"

    @pytest.mark.parametrize("text", ["no code at all", "E_FUTURE|something", ""])
    def test_unknown_codes(self, text: str) -> None:
        error = _errors.from_native(RuntimeError(text))
        assert type(error) is MoriError
        assert str(error) == text

    def test_ours_pass_through(self) -> None:
        error = BadStateError("as it is")
        assert _errors.from_native(error) is error

    def test_native_errors_arrive_typed(self) -> None:
        with pytest.raises(MoriError):
            _core.call("UnpackEngineDesc", 0, 0)

    def test_unknown_function(self) -> None:
        with pytest.raises(_errors.ExtensionError, match="NoSuchThing"):
            _core.call("NoSuchThing")

    @pytest.mark.parametrize("present", [[], ["_moricore.cpython-399-x86_64-linux-gnu.so"]])
    def test_load_failure_explains_itself(self, present: list[str]) -> None:
        code = f"""
import os, sys
from mori import _core
import mori.io
real = os.listdir
os.listdir = lambda path: {present!r} if str(path).endswith("_native") else real(path)
sys.modules["mori._native._moricore"] = None
for attempt in range(2):
    try:
        mori.io.IOEngine("k", mori.io.IOEngineConfig())
    except ImportError as err:
        assert isinstance(err, RuntimeError)
        text = str(err)
assert not _core.loaded()
print(text)
"""
        text = run_script(code)
        assert "Likely causes" in text
        assert "_moricore" in text
        assert all(name in text for name in present)

    def test_damaged_file(self, tmp_path: object) -> None:
        code = f"""
import sysconfig, sys, os
import mori, mori._native
suffix = sysconfig.get_config_var("EXT_SUFFIX")
with open(os.path.join({str(tmp_path)!r}, "_moricore" + suffix), "wb") as file:
    file.write(b"not an ELF file")
mori._native.__path__[:] = [{str(tmp_path)!r}]
import mori.io
try:
    mori.io.IOEngine("k", mori.io.IOEngineConfig())
except ImportError as err:
    print(err)
"""
        assert "Likely causes" in run_script(code)


# What a forked child tries; each line must raise ForkError in it.
CALLS = """
engine.get_engine_desc()
engine.create_backend(mori.io.BackendType.TCP)
engine.remove_backend(mori.io.BackendType.RDMA)
engine.register_remote_engine(desc)
engine.deregister_remote_engine(desc)
engine.register_memory(*mori.tensor_utils.buffer_span(buffer))
engine.deregister_memory(memory)
engine.create_session(memory, memory)
engine.allocate_transfer_uid()
engine.write(memory, 0, memory, 32, 8, 0)
engine.read(memory, 0, memory, 32, 8, 0)
engine.batch_write([memory], [[0]], [memory], [[32]], [[8]], [0])
engine.batch_read([memory], [[0]], [memory], [[32]], [[8]], [0])
engine.pop_inbound_transfer_status("k", 0)
engine.wait_all([status], 100)
engine.describe()
engine.close()
session.write(0, 32, 8, 0)
session.read(0, 32, 8, 0)
session.batch_write([0], [32], [8], 0)
session.batch_read([0], [32], [8], 0)
session.allocate_transfer_uid()
session.alive()
session.describe()
status.Code()
status.Message()
status.Succeeded()
status.Failed()
status.InProgress()
status.Init()
status.Wait()
status.WaitFor(10)
status.SetCode(mori.io.StatusCode.SUCCESS)
status.SetMessage("x")
status.Update(mori.io.StatusCode.SUCCESS, "x")
mori.cpp.TransferStatus()
mori.io.IOEngine("new", mori.io.IOEngineConfig())
mori.io.EngineDesc.unpack(desc.pack())
mori.io.MemoryDesc.unpack(memory.pack())
""".strip().splitlines()

FORKED = """
import gc, os, sys, mori.io, mori.cpp, mori.tensor_utils
engine = mori.io.IOEngine("k", mori.io.IOEngineConfig("127.0.0.1", 0))
engine.create_backend(mori.io.BackendType.RDMA)
desc = engine.get_engine_desc()
buffer = bytearray(64)
memory = engine.register_memory(*mori.tensor_utils.buffer_span(buffer))
session = engine.create_session(memory, memory)
status = session.write(0, 32, 8, 0)
status.Wait()
def in_child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as err:
            print(f"{type(err).__name__}: {err}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


class TestFork:
    def test_every_call_raises(self) -> None:
        code = f"""{FORKED}
def work():
    for line in {CALLS!r}:
        try:
            eval(line)
        except mori.io.ForkError as err:
            assert "spawn" in str(err) and "this process was forked" in str(err), err
        else:
            raise AssertionError(line + " did not raise")
assert in_child(work) == 0
assert status.Succeeded() and session.write(0, 32, 8, 1).WaitFor(5000) == mori.io.StatusCode.SUCCESS
"""
        run_script(code)

    def test_values_keep_working(self) -> None:
        code = f"""{FORKED}
def work():
    assert memory.size == 64 and desc.key == "k" and memory == memory
    assert mori.io.RdmaBackendConfig().qp_per_transfer == 1
    assert memory.pack() and mori.io.MemoryDesc().size == 0
assert in_child(work) == 0
"""
        run_script(code)

    def test_dropping_and_collecting_does_not_hang(self) -> None:
        code = f"""{FORKED}
def work():
    global engine, session, status, memory
    del engine, session, status, memory
    for _ in range(50):
        gc.collect()
    lists = [[n] for n in range(100_000)]
assert in_child(work) == 0
"""
        run_script(code)

    def test_normal_exit_of_the_child(self) -> None:
        code = f"""{FORKED}
pid = os.fork()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
    assert session.write(0, 32, 8, 1).WaitFor(5000) == mori.io.StatusCode.SUCCESS
print("end")
"""
        assert run_script(code) == "end\nend\n"

    def test_multiprocessing_pool(self) -> None:
        code = f"""{FORKED}
import multiprocessing
def double(n):
    return 2 * n
def touch(_):
    try:
        mori.io.MemoryDesc.unpack(b"")
    except Exception as err:
        return type(err).__name__
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(double, range(10)) == list(range(0, 20, 2))
    assert pool.map(touch, range(2)) == ["ForkError"] * 2
"""
        run_script(code)

    def test_subprocess_and_exec(self) -> None:
        code = f"""{FORKED}
import subprocess
program = "import mori.io; mori.io.IOEngine('k', mori.io.IOEngineConfig())"
assert subprocess.run([sys.executable, "-c", program]).returncode == 0
"""
        run_script(code)

    def test_child_of_an_importer_is_free(self) -> None:
        code = """
import os, mori.io, mori.cpp
pid = os.fork()
from support import Region, new_engine, succeed
with new_engine("mine") as engine:
    region = Region(engine, 64)
    succeed(engine.write(region.desc, 0, region.desc, 32, 8, 0))
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
        run_script(code)

    def test_forks_between_running_transfers(self) -> None:
        code = f"""{FORKED}
import threading
stop, wrong = threading.Event(), []
def submit():
    while not stop.is_set():
        code = session.write(0, 32, 8, 1).WaitFor(5000)
        if code != mori.io.StatusCode.SUCCESS:
            wrong.append(code)
threads = [threading.Thread(target=submit) for _ in range(3)]
for thread in threads:
    thread.start()
def work():
    for call in (engine.describe, lambda: session.write(0, 32, 8, 2), lambda: mori.cpp.TransferStatus()):
        try:
            call()
        except mori.io.ForkError:
            continue
        raise AssertionError
assert [in_child(work) for _ in range(15)] == [0] * 15
stop.set()
for thread in threads:
    thread.join()
assert not wrong
"""
        run_script(code)

    def test_grandchild(self) -> None:
        code = f"""{FORKED}
def work():
    def deeper():
        try:
            engine.get_engine_desc()
        except mori.io.ForkError:
            return
        raise AssertionError
    assert in_child(deeper) == 0
assert in_child(work) == 0
"""
        run_script(code)


class TestSignals:
    @pytest.mark.parametrize("wait", ["status.Wait()", "status.WaitFor(-1)", "engine.wait_all([status])"])
    def test_ctrl_c_ends_a_wait(self, wait: str) -> None:
        code = f"""
import os, signal, threading, time
import mori.io, mori.cpp
engine = mori.io.IOEngine("k", mori.io.IOEngineConfig())
status = mori.cpp.TransferStatus()
status.SetCode(mori.io.StatusCode.IN_PROGRESS)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted")
"""
        assert run_script(code, timeout=15) == "interrupted\n"

    def test_handlers_of_the_program_run(self) -> None:
        code = """
import os, signal, mori.io
seen = []
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
    signal.signal(number, lambda n, _: seen.append(n))
engine = mori.io.IOEngine("k", mori.io.IOEngineConfig())
engine.create_backend(mori.io.BackendType.RDMA)
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
    os.kill(os.getpid(), number)
assert sorted(seen) == sorted((signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD)), seen
"""
        run_script(code)

    def test_default_sigterm_kills(self) -> None:
        code = """
import mori.io, os, signal
engine = mori.io.IOEngine("k", mori.io.IOEngineConfig())
os.kill(os.getpid(), signal.SIGTERM)
"""
        result = subprocess.run([sys.executable, "-c", code], env=with_path(), timeout=20, check=False)
        assert result.returncode == -15


def with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


class TestThreads:
    def test_first_use_from_many_threads(self) -> None:
        code = """
import threading, mori.io
gate = threading.Barrier(8)
keys = []
def work(n):
    gate.wait()
    engine = mori.io.IOEngine(str(n), mori.io.IOEngineConfig())
    keys.append(engine.get_engine_desc().key)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sorted(keys) == [str(n) for n in range(8)]
"""
        run_script(code)


class TestEnvironment:
    def test_read_late(self) -> None:
        code = """
import os, mori.io
from support import new_engine
first = new_engine("a")
os.environ["MORI_NODE_ID"] = "set-after-start"
assert new_engine("b").get_engine_desc().node_id == "set-after-start"
del os.environ["MORI_NODE_ID"]
assert new_engine("c").get_engine_desc().node_id == first.get_engine_desc().node_id
"""
        run_script(code, MORI_NODE_ID="")

    @pytest.mark.parametrize("early", [True, False])
    def test_log_level(self, early: bool) -> None:
        code = f"""
import mori.io
from support import new_engine
if {early}:
    mori.io.set_log_level("Critical")
new_engine("first").create_backend(mori.io.BackendType.RDMA)
mori.io.set_log_level("warn")
new_engine("second").create_backend(mori.io.BackendType.RDMA)
mori.io.set_log_level("critical")
new_engine("third").create_backend(mori.io.BackendType.RDMA)
"""
        done = run_program(code)
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert all(re.match(r"\[[^]]+\] \[\d+\] \[io\] \[warn\] ", line) for line in lines)
        named = {name for name in ("first", "second", "third") for line in lines if name in line}
        assert named == ({"second"} if early else {"first", "second"})

    def test_silent_by_default(self) -> None:
        done = run_program("from support import new_engine; new_engine('quiet')")
        assert (done.stdout, done.stderr) == ("", "")


def test_example_of_the_documentation_runs() -> None:
    import mori.io

    text = inspect.getdoc(mori.io)
    start, end = text.index("    from mori.io import"), text.index("Importing this module")
    run_script(textwrap.dedent(text[start:end]))


def test_native_version_is_told() -> None:
    assert isinstance(_core.call("Version"), str)
    assert isinstance(json.loads(_core.call("Doctor")), dict)
