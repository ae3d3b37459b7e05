# SPDX-License-Identifier: MIT
"""The names that programs written for AMD's MORI use: of arguments, attributes and classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import mori.cpp
import mori.io.engine
from mori.io import BackendType, IOEngine, IOEngineSession, RdmaBackendConfig, TcpBackendConfig
from support import Region, eventually, introduce, pattern, run_program, succeed

ARGUMENTS = {
    "register_remote_engine": ["self", "engine_desc"],
    "deregister_remote_engine": ["self", "engine_desc"],
    "register_memory": ["self", "ptr", "size", "device_id", "mem_loc"],
    "register_torch_tensor": ["self", "tensor"],
    "deregister_memory": ["self", "mem_desc"],
    "create_session": ["self", "local_mem", "remote_mem"],
    "pop_inbound_transfer_status": ["self", "remote_key", "transfer_uid"],
    "create_backend": ["self", "type", "config"],
    "remove_backend": ["self", "type"],
}


@pytest.mark.parametrize("method", ARGUMENTS)
def test_arguments_have_the_names_of_mori(method: str) -> None:
    assert list(inspect.signature(getattr(IOEngine, method)).parameters) == ARGUMENTS[method]


@pytest.mark.parametrize("second", [False, True], ids=["names of MORI", "second names"])
def test_calls_by_name(make_engine: Callable[..., IOEngine], second: bool) -> None:
    desc, mem, local, remote, uid = (
        ("desc", "desc", "local", "remote", "uid")
        if second
        else ("engine_desc", "mem_desc", "local_mem", "remote_mem", "transfer_uid")
    )
    left, right = make_engine("left", BackendType.TCP), make_engine("right", BackendType.TCP)
    left.register_remote_engine(**{desc: right.get_engine_desc()})
    right.register_remote_engine(**{desc: left.get_engine_desc()})
    source, target = Region(left, pattern(4096)), Region(right, 4096)
    session = left.create_session(**{local: source.desc, remote: target.desc})
    assert session is not None
    succeed(session.write(0, 0, 4096, 7))
    eventually(lambda: right.pop_inbound_transfer_status(**{"remote_key": "left", uid: 7}) is not None)
    left.deregister_memory(**{mem: source.desc})
    left.deregister_remote_engine(**{desc: right.get_engine_desc()})


def test_both_names_at_once(make_engine: Callable[..., IOEngine]) -> None:
    engine = make_engine("alone")
    desc = engine.get_engine_desc()
    with pytest.raises(TypeError, match="'engine_desc' and 'desc', which are the same argument"):
        engine.register_remote_engine(engine_desc=desc, desc=desc)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="multiple values for argument 'engine_desc'"):
        engine.register_remote_engine(desc, desc=desc)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'description'"):
        engine.register_remote_engine(description=desc)  # type: ignore[call-arg]


def test_native_objects(make_engine: Callable[..., IOEngine]) -> None:
    assert mori.io.engine.mori_cpp is mori.cpp
    left, right = make_engine("left"), make_engine("right")
    introduce(left, right)
    session = left.create_session(Region(left, 4096).desc, Region(right, 4096).desc)
    assert isinstance(session, IOEngineSession)
    assert isinstance(left._engine, mori.cpp.IOEngine)
    assert isinstance(session._sess, mori.cpp.IOEngineSession)
    assert session._sess.Alive()


def test_names_that_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = mori.io.engine.nonsense


def test_tcp_configuration(make_engine: Callable[..., IOEngine]) -> None:
    config = TcpBackendConfig(enable_notification=False)
    assert isinstance(config, RdmaBackendConfig)
    assert mori.cpp.TcpBackendConfig is TcpBackendConfig
    engine = make_engine("tcp", BackendType.TCP, config)
    assert engine.describe()["backends"]


def test_numbers_without_effect_are_reported_once() -> None:
    done = run_program("""
from mori.io import BackendType, RdmaBackendConfig
from support import new_engine
for name in ("a", "b"):
    new_engine(name, BackendType.RDMA, RdmaBackendConfig(num_worker_threads=4))
""")
    assert done.stderr.count("num_worker_threads=4 (the submitting thread posts)") == 1
