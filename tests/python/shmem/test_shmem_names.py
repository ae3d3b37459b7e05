# SPDX-License-Identifier: MIT
"""What there is before any init: the names, and what each call answers then."""

from __future__ import annotations

import inspect
import os
import struct
from collections.abc import Callable

import pytest

import mori.cpp
import mori.shmem
from mori.shmem import api
from support import run_program, run_script

CONTRACT = [
    "shmem_get_unique_id",
    "shmem_init_attr",
    "shmem_finalize",
    "shmem_module_init",
    "shmem_mype",
    "shmem_npes",
    "shmem_barrier_all",
    "shmem_barrier_on_stream",
    "shmem_malloc",
    "shmem_malloc_align",
    "shmem_ext_malloc_with_flags",
    "shmem_free",
    "shmem_buffer_register",
    "shmem_buffer_deregister",
    "shmem_ptr_p2p",
    "shmem_num_qp_per_pe",
]
IN_PYTHON = ["shmem_torch_process_group_init", "shmem_mpi_init"]
TENSORS = [
    "MoriShmemBuffer",
    "mori_shmem_create_tensor",
    "mori_shmem_free_tensor",
    "symm_mori_shmem_tensor",
    "mori_shmem_create_tensor_list_intra_node",
]

NEEDS_INIT: dict[str, Callable[[], object]] = {
    "module_init": lambda: mori.shmem.shmem_module_init(0),
    "load_module": lambda: mori.cpp.load_shmem_module("/nowhere.hsaco"),
    "mype": mori.shmem.shmem_mype,
    "npes": mori.shmem.shmem_npes,
    "num_qp": mori.shmem.shmem_num_qp_per_pe,
    "malloc": lambda: mori.shmem.shmem_malloc(64),
    "malloc_align": lambda: mori.shmem.shmem_malloc_align(64, 64),
    "calloc": lambda: mori.shmem.shmem_calloc(8, 8),
    "ext_malloc": lambda: mori.shmem.shmem_ext_malloc_with_flags(64, 3),
    "free": lambda: mori.shmem.shmem_free(4096),
    "register": lambda: mori.shmem.shmem_buffer_register(4096, 64),
    "deregister": lambda: mori.shmem.shmem_buffer_deregister(4096, 64),
    "ptr_p2p": lambda: mori.shmem.shmem_ptr_p2p(4096, 0, 1),
    "ptr": lambda: mori.shmem.shmem_ptr(4096, 0),
    "describe": mori.shmem.shmem_describe,
    "barrier": mori.shmem.shmem_barrier_all,
    "barrier on stream": mori.shmem.shmem_barrier_on_stream,
    "sync": mori.shmem.shmem_sync_all,
    "quiet": mori.shmem.shmem_quiet,
    "put": lambda: mori.shmem.shmem_put(4096, b"x", 1, 0, "uint8"),
    "atomic": lambda: mori.shmem.shmem_atomic_fetch(4096, 0, "int64"),
    "wait": lambda: mori.shmem.shmem_wait_until(4096, 1, 0, "int64"),
    "signal": lambda: mori.shmem.shmem_signal_fetch(4096),
    "team": mori.shmem.SHMEM_TEAM_WORLD.n_pes,
    "split": lambda: mori.shmem.SHMEM_TEAM_WORLD.split_strided(0, 1, 1),
    "create": lambda: mori.shmem.mori_shmem_create_tensor((2,), "float32"),
}


class TestNames:
    @pytest.mark.parametrize("name", CONTRACT)
    def test_both_namespaces_have(self, name: str) -> None:
        assert callable(getattr(mori.shmem, name))
        assert callable(getattr(api, name))
        assert callable(getattr(mori.cpp, name))

    def test_only_python_has(self) -> None:
        for name in IN_PYTHON:
            assert callable(getattr(mori.shmem, name))
            assert not hasattr(mori.cpp, name)
        assert callable(mori.cpp.load_shmem_module)

    def test_constants(self) -> None:
        for module in (mori.shmem, mori.cpp):
            assert module.MORI_SHMEM_INIT_WITH_MPI_COMM == 0
            assert module.MORI_SHMEM_INIT_WITH_UNIQUEID == 1
        assert (mori.shmem.SHMEM_SIGNAL_SET, mori.shmem.SHMEM_SIGNAL_ADD) == (9, 10)

    def test_modules_that_come_along(self) -> None:
        import ctypes
        import threading

        for module in (mori.shmem, api):
            assert (module.ctypes, module.threading, module.mori_cpp) == (ctypes, threading, mori.cpp)

    @pytest.mark.parametrize("name", TENSORS)
    def test_tensor_names(self, name: str) -> None:
        from mori.shmem import tensor_utils

        assert getattr(mori.shmem, name) is getattr(tensor_utils, name)
        assert name in dir(mori.shmem)

    def test_unknown_name(self) -> None:
        with pytest.raises(AttributeError, match="shmem_put_everything"):
            mori.shmem.shmem_put_everything  # noqa: B018

    def test_star_import_has_all_of_api(self) -> None:
        names = {name for name in vars(api) if not name.startswith("_")}
        assert names <= set(vars(mori.shmem))
        assert set(CONTRACT) <= names

    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            ("shmem_init_attr", ["flags", "rank", "nranks", "unique_id"]),
            ("shmem_malloc_align", ["alignment", "size"]),
            ("shmem_ext_malloc_with_flags", ["size", "flags"]),
            ("shmem_buffer_register", ["ptr", "size"]),
            ("shmem_ptr_p2p", ["dest_ptr", "my_pe", "dest_pe"]),
            ("shmem_barrier_on_stream", ["stream"]),
            ("shmem_module_init", ["hip_module"]),
            ("shmem_torch_process_group_init", ["group_name"]),
        ],
    )
    def test_parameter_names(self, name: str, parameters: list[str]) -> None:
        assert list(inspect.signature(getattr(mori.shmem, name)).parameters) == parameters

    def test_everything_has_a_docstring(self) -> None:
        for name, value in vars(mori.shmem).items():
            if name.startswith("shmem_"):
                assert inspect.getdoc(value), name


def test_import_starts_nothing() -> None:
    out = run_script(
        "import sys, threading, mori.shmem, mori.cpp\n"
        "from mori import _core\n"
        "from mori.shmem import *\n"
        "assert not _core.loaded() and threading.active_count() == 1\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "try: shmem_mype()\n"
        "except RuntimeError: pass\n"
        "assert shmem_finalize() == 0\n"
        "print(_core.loaded(), shmem_get_unique_id()[:4])"
    )
    assert out.strip() == r"False b'\x01\x00\x00\x00'"


class TestBeforeInit:
    @pytest.mark.parametrize("what", NEEDS_INIT)
    def test_raises(self, what: str) -> None:
        with pytest.raises(RuntimeError, match=r"not initialised.*shmem_init_attr"):
            NEEDS_INIT[what]()

    def test_finalize_is_harmless(self) -> None:
        assert mori.shmem.shmem_finalize() == 0


class TestUniqueId:
    def test_is_128_bytes_and_begins_with_version_1(self) -> None:
        made = mori.shmem.shmem_get_unique_id()
        assert type(made) is bytes
        assert len(made) == 128
        assert struct.unpack("<i", made[:4]) == (1,)

    def test_no_two_are_equal(self) -> None:
        assert len({mori.shmem.shmem_get_unique_id() for _ in range(8)}) == 8

    def test_interface(self) -> None:
        code = "import mori.shmem as s; print(socket.inet_aton('127.0.0.1') in s.shmem_get_unique_id())"
        assert run_script(f"import socket; {code}", MORI_SOCKET_IFNAME="lo").strip() == "True"

    def test_interface_that_is_not_there(self) -> None:
        code = "import mori.shmem as s\ntry: s.shmem_get_unique_id()\nexcept RuntimeError as err: print(err)"
        assert "nosuch0" in run_script(code, MORI_SOCKET_IFNAME="nosuch0")


class TestInitAttrRefuses:
    """In a world of one rank, so that no call waits for another rank."""

    @pytest.fixture
    def unique_id(self) -> bytes:
        return mori.shmem.shmem_get_unique_id()

    @pytest.mark.parametrize("size", [0, 1, 127, 129])
    def test_an_id_of_another_length(self, size: int) -> None:
        with pytest.raises(RuntimeError, match=f"{size} bytes, want 128"):
            mori.shmem.shmem_init_attr(1, 0, 1, bytes(size))

    @pytest.mark.parametrize("value", ["x" * 128, None, 7, [1] * 128])
    def test_an_id_that_is_not_bytes(self, value: object) -> None:
        with pytest.raises(TypeError, match="bytes"):
            mori.shmem.shmem_init_attr(1, 0, 1, value)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("flags", "rank", "nranks", "said"),
        [
            (0, 0, 1, "shmem_mpi_init"),
            (2, 0, 1, "flags"),
            (-1, 0, 1, "flags"),
            (1, 1, 1, "rank 1 of 1"),
            (1, -1, 1, "rank -1"),
            (1, 0, 0, "rank 0 of 0"),
            (1, 0, -3, "of -3"),
            (1, 0, 2**40, str(2**40)),
        ],
    )
    def test_arguments(
        self, capfd: pytest.CaptureFixture[str], unique_id: bytes, flags: int, rank: int, nranks: int, said: str
    ) -> None:
        assert mori.shmem.shmem_init_attr(flags, rank, nranks, unique_id) == -1
        logged = capfd.readouterr().err
        assert "[shmem] [error]" in logged
        assert said in logged

    @pytest.mark.parametrize("change", [0, 4, 60, 127], ids=lambda at: f"byte {at}")
    def test_an_id_that_was_altered(self, capfd: pytest.CaptureFixture[str], unique_id: bytes, change: int) -> None:
        altered = bytearray(unique_id)
        altered[change] ^= 0x41
        assert mori.shmem.shmem_init_attr(1, 0, 1, bytes(altered)) == -1
        assert "unique id" in capfd.readouterr().err

    def test_random_bytes(self) -> None:
        assert mori.shmem.shmem_init_attr(1, 0, 1, os.urandom(128)) == -1

    def test_ranks_that_never_come_are_named(self) -> None:
        done = run_program(
            "import mori.shmem as s; print(s.shmem_init_attr(1, 0, 4, s.shmem_get_unique_id()))",
            MORI_BOOTSTRAP_TIMEOUT="1",
        )
        assert done.stdout == "-1\n"
        assert "1-3" in done.stderr
