# SPDX-License-Identifier: MIT
"""Inbound notifications: what the target of a transfer can see."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpus import Memory
from mori.cpp import TransferStatus
from mori.io import BackendType, IOEngine, RdmaBackendConfig, StatusCode
from support import Peer, Region, eventually, finish, introduce, pattern, succeed


def test_write_is_announced_with_its_bytes_in_place(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(1 << 20), memory), Region(right, 1 << 20, memory)
    uid = left.allocate_transfer_uid()
    assert right.pop_inbound_transfer_status("left", uid) is None
    status = left.write(here.desc, 0, there.desc, 0, 1 << 20, uid)
    inbound = eventually(lambda: right.pop_inbound_transfer_status("left", uid))
    assert bytes(there) == bytes(here)
    assert isinstance(inbound, TransferStatus)
    assert inbound.Code() == StatusCode.SUCCESS
    succeed(status)


def test_every_kind_of_transfer(memory: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, pattern(64), memory), Region(right, 64, memory)
    session = left.create_session(here.desc, there.desc)
    statuses = [
        left.write(here.desc, 0, there.desc, 0, 8, 100),
        left.read(here.desc, 0, there.desc, 0, 8, 101),
        session.write(0, 0, 8, 102),
        session.read(0, 0, 8, 103),
        session.batch_write([0, 8], [0, 8], [4, 4], 104),
        session.batch_read([0, 8], [0, 8], [4, 4], 105),
        *left.batch_write([here.desc] * 2, [[0], [8]], [there.desc] * 2, [[0], [8]], [[4], [4]], [106, 107]),
        *left.batch_read([here.desc], [[0]], [there.desc], [[0]], [[4]], [108]),
    ]
    for status in statuses:
        succeed(status)
    for uid in range(100, 109):
        eventually(lambda uid=uid: right.pop_inbound_transfer_status("left", uid))
    assert right.pop_inbound_transfer_status("left", 109) is None


def test_not_consumed(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, 16), Region(right, 16)
    succeed(left.write(here.desc, 0, there.desc, 0, 8, 7))
    first = eventually(lambda: right.pop_inbound_transfer_status("left", 7))
    second = right.pop_inbound_transfer_status("left", 7)
    assert second is not first
    first.Update(StatusCode.ERR_GPU_OP, "mine alone")
    assert right.pop_inbound_transfer_status("left", 7).Succeeded()


def test_unknown_keys(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    succeed(left.write(Region(left, 16).desc, 0, Region(right, 16).desc, 0, 8, 3))
    eventually(lambda: right.pop_inbound_transfer_status("left", 3))
    assert right.pop_inbound_transfer_status("nobody", 3) is None
    assert right.pop_inbound_transfer_status("left", 4) is None
    assert left.pop_inbound_transfer_status("right", 3) is None


@pytest.mark.parametrize("args", [(None, 0), (b"left", 0), ("left", -1), ("left", "0"), ("left", 1.0), ("left", 2**64)])
def test_wrong_types(engine: IOEngine, args: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        engine.pop_inbound_transfer_status(*args)


@pytest.mark.parametrize("uid", [2**30 - 1, 2**30, 2**60 - 1, 2**60, 2**63, 2**64 - 1])
def test_large_uids(two_engines: tuple[IOEngine, IOEngine], uid: int) -> None:
    left, right = two_engines
    succeed(left.write(Region(left, 16).desc, 0, Region(right, 16).desc, 0, 8, uid))
    eventually(lambda: right.pop_inbound_transfer_status("left", uid))
    assert right.pop_inbound_transfer_status("left", uid ^ 2**29) is None


def test_failed_submission_sends_none(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, 16), Region(right, 16)
    assert finish(left.write(here.desc, 0, there.desc, 0, 17, 1)) == StatusCode.ERR_INVALID_ARGS
    succeed(left.write(here.desc, 0, there.desc, 0, 16, 2))
    eventually(lambda: right.pop_inbound_transfer_status("left", 2))
    assert right.pop_inbound_transfer_status("left", 1) is None


@pytest.mark.parametrize(("ours", "theirs"), [(False, True), (True, False), (False, False)])
def test_disabled(make_engine: Callable[..., IOEngine], backend: BackendType, ours: bool, theirs: bool) -> None:
    left = make_engine("left", backend, RdmaBackendConfig(enable_notification=ours))
    right = make_engine("right", backend, RdmaBackendConfig(enable_notification=theirs))
    introduce(left, right)
    here, there = Region(left, pattern(64)), Region(right, 64)
    for uid in range(5):
        succeed(left.write(here.desc, 0, there.desc, 0, 64, uid))
    assert there.buffer == here.buffer
    assert all(right.pop_inbound_transfer_status("left", uid) is None for uid in range(5))


@pytest.mark.parametrize(
    ("value", "configured", "announced"), [("0", True, False), ("1", False, True), ("off", True, False)]
)
def test_environment_overrides(
    make_engine: Callable[..., IOEngine],
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    configured: bool,
    announced: bool,
) -> None:
    monkeypatch.setenv("MORI_IO_ENABLE_NOTIFICATION", value)
    config = RdmaBackendConfig(enable_notification=configured)
    left, right = (make_engine(key, BackendType.RDMA, config) for key in ("left", "right"))
    introduce(left, right)
    succeed(left.write(Region(left, 16).desc, 0, Region(right, 16).desc, 0, 8, 0))
    if announced:
        eventually(lambda: right.pop_inbound_transfer_status("left", 0))
    else:
        assert right.pop_inbound_transfer_status("left", 0) is None


def test_to_another_process(
    memory: Memory, make_engine: Callable[..., IOEngine], make_peer: Callable[..., Peer], backend: BackendType
) -> None:
    engine, peer = make_engine("here", backend), make_peer("there", backend)
    peer.meet(engine)
    region = Region(engine, pattern(4096), memory)
    index, remote = peer.register(4096, memory)
    uid = engine.allocate_transfer_uid()
    succeed(engine.write(region.desc, 0, remote, 0, 4096, uid))
    assert eventually(lambda: peer.call("pop", "here", uid) is not None)
    assert peer.content(index) == bytes(region)


def test_a_successor_has_sent_nothing(make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
    left, right = make_engine("left", backend), make_engine("right", backend)
    introduce(left, right)
    here, there = Region(left, 16), Region(right, 16)
    session = left.create_session(here.desc, there.desc)
    succeed(session.write(0, 0, 8, 0, tag="old"))
    eventually(lambda: right.pop_inbound_transfer_status("left", 0))
    eventually(lambda: right.inbound_tag("left", 0))
    again = make_engine("left", backend)
    introduce(again, right)
    assert right.pop_inbound_transfer_status("left", 0) is None
    assert right.inbound_tag("left", 0) is None
    succeed(again.write(Region(again, 16).desc, 0, there.desc, 0, 8, 1))
    eventually(lambda: right.pop_inbound_transfer_status("left", 1))
    assert right.pop_inbound_transfer_status("left", 0) is None


def test_deregistering_forgets(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    session = left.create_session(Region(left, 16).desc, Region(right, 16).desc)
    succeed(session.write(0, 0, 8, 3, tag="x"))
    eventually(lambda: right.pop_inbound_transfer_status("left", 3))
    eventually(lambda: right.inbound_tag("left", 3))
    right.deregister_remote_engine(left.get_engine_desc())
    assert right.pop_inbound_transfer_status("left", 3) is None
    assert right.inbound_tag("left", 3) is None
    right.register_remote_engine(left.get_engine_desc())
    assert right.pop_inbound_transfer_status("left", 3) is None
    assert right.inbound_tag("left", 3) is None
