# SPDX-License-Identifier: MIT
"""Peers in processes of their own: spawned, forked, on another "host", and killed in mid-transfer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from gpus import Memory
from mori.io import BackendType, IOEngine, RdmaBackendConfig, StatusCode
from support import Peer, Region, finish, pattern, run_script, succeed

SIZE = 1 << 20
OFFS = list(range(0, SIZE, 8192))
LENS = [4096] * len(OFFS)


@pytest.fixture
def peer(make_peer: Callable[..., Peer], backend: BackendType) -> Peer:
    return make_peer("there", backend)


@pytest.fixture
def here(make_engine: Callable[..., IOEngine], backend: BackendType, peer: Peer) -> IOEngine:
    engine = make_engine("here", backend)
    peer.meet(engine)
    return engine


class TestSpawned:
    def test_write(self, memory: Memory, here: IOEngine, peer: Peer) -> None:
        region = Region(here, pattern(SIZE), memory)
        index, remote = peer.register(SIZE, memory)
        succeed(here.write(region.desc, 0, remote, 0, SIZE, here.allocate_transfer_uid()))
        assert peer.content(index) == bytes(region)

    def test_read(self, memory: Memory, here: IOEngine, peer: Peer) -> None:
        region = Region(here, SIZE, memory)
        _, remote = peer.register(pattern(SIZE), memory)
        succeed(here.read(region.desc, 0, remote, 0, SIZE, here.allocate_transfer_uid()))
        assert bytes(region) == pattern(SIZE)

    def test_session_batches(self, memory: Memory, here: IOEngine, peer: Peer) -> None:
        region = Region(here, pattern(SIZE, 1), memory)
        index, remote = peer.register(pattern(SIZE, 2), memory)
        session = here.create_session(region.desc, remote)
        succeed(session.batch_write(OFFS, OFFS[::-1], LENS, 0))
        content = peer.content(index)
        sent = pattern(SIZE, 1)
        for at, to in zip(OFFS, OFFS[::-1], strict=True):
            assert content[to : to + 4096] == sent[at : at + 4096]
        succeed(session.batch_read(OFFS, OFFS, LENS, 1))
        here_now = bytes(region)
        for at in OFFS:
            assert here_now[at : at + 4096] == content[at : at + 4096]

    def test_both_sides_at_once(self, memory: Memory, here: IOEngine, peer: Peer) -> None:
        ours, theirs = Region(here, pattern(SIZE, 1), memory), Region(here, SIZE, memory)
        index, _ = peer.register(pattern(SIZE, 2), memory)
        landing, target = peer.register(SIZE, memory)
        status = here.write(ours.desc, 0, target, 0, SIZE, 0)
        code = peer.call("transfer", "batch_write", index, OFFS, theirs.desc.pack(), OFFS, LENS)
        assert StatusCode(code) == StatusCode.SUCCESS
        succeed(status)
        assert peer.content(landing) == bytes(ours)
        landed, sent = bytes(theirs), pattern(SIZE, 2)
        for at in OFFS:
            assert landed[at : at + 4096] == sent[at : at + 4096]

    def test_refused_at_the_target(self, memory: Memory, here: IOEngine, peer: Peer) -> None:
        region = Region(here, pattern(64), memory)
        index, remote = peer.register(64, memory)
        session = here.create_session(region.desc, remote)
        succeed(session.write(0, 0, 8, 0))
        peer.call("deregister", index)
        try:
            status = session.write(8, 8, 8, 1)
        except RuntimeError:
            pass
        else:
            assert finish(status).value > 10
        assert peer.content(index) == pattern(64)[:8] + bytes(56)


def test_path_to_the_same_host(make_engine: Callable[..., IOEngine], make_peer: Callable[..., Peer]) -> None:
    engine, peer = make_engine("here"), make_peer("there")
    peer.meet(engine)
    region = Region(engine, 64)
    session = engine.create_session(region.desc, peer.register(64)[1])
    succeed(session.write(0, 0, 8, 0))
    described = session.describe()
    assert described["path"].startswith(("shm", "tcp")), described
    if not described["path"].startswith("shm"):
        assert "shm" in str(described["reasons"]), "the reason must be told"


def test_path_to_another_host(
    memory: Memory, make_engine: Callable[..., IOEngine], make_peer: Callable[..., Peer]
) -> None:
    engine, peer = make_engine("here"), make_peer("there", environment={"MORI_NODE_ID": "elsewhere"})
    assert peer.desc.node_id == "elsewhere"
    peer.meet(engine)
    region = Region(engine, pattern(SIZE), memory)
    index, remote = peer.register(SIZE, memory)
    session = engine.create_session(region.desc, remote)
    succeed(session.write(0, 0, SIZE, 0))
    assert peer.content(index) == bytes(region)
    described = session.describe()
    assert described["path"].startswith("tcp")
    assert "host" in str(described["reasons"]), "why not shared memory"


class TestKilled:
    def test_in_mid_transfer(self, memory: Memory, here: IOEngine, peer: Peer) -> None:
        size = 128 << 20
        region = Region(here, size, memory)
        _, remote = peer.register(size, memory)
        session = here.create_session(region.desc, remote)
        succeed(session.write(0, 0, 8, 0))
        statuses = [session.write(0, 0, size, uid) for uid in range(1, 9)]
        peer.kill()
        begin = time.monotonic()
        codes = [finish(status, 15_000) for status in statuses]
        assert time.monotonic() - begin < 15, "a dead peer is noticed at once, not by the deadline"
        assert codes[-1] != StatusCode.SUCCESS
        for status in statuses:
            if status.Failed():
                assert "there" in status.Message()

    def test_while_idle(self, memory: Memory, here: IOEngine, peer: Peer) -> None:
        region = Region(here, 64, memory)
        _, remote = peer.register(64, memory)
        session = here.create_session(region.desc, remote)
        succeed(session.write(0, 0, 8, 0))
        peer.kill()
        status = session.write(0, 0, 8, 1)
        assert finish(status, 15_000) != StatusCode.SUCCESS
        assert "there" in status.Message()

    def test_others_are_not_affected(
        self, memory: Memory, here: IOEngine, peer: Peer, make_peer: Callable[..., Peer], backend: BackendType
    ) -> None:
        other = make_peer("other", backend)
        other.meet(here)
        region = Region(here, pattern(SIZE), memory)
        _, doomed = peer.register(SIZE, memory)
        index, remote = other.register(SIZE, memory)
        sessions = [here.create_session(region.desc, desc) for desc in (doomed, remote)]
        for session in sessions:
            succeed(session.write(0, 0, 8, 0))
        running = [sessions[0].write(0, 0, SIZE, uid) for uid in range(20)]
        peer.kill()
        for uid in range(20):
            succeed(sessions[1].write(0, 0, SIZE, uid))
        assert other.content(index) == bytes(region)
        for status in running:
            finish(status, 15_000)

    def test_a_successor_with_the_same_key(
        self, memory: Memory, here: IOEngine, peer: Peer, make_peer: Callable[..., Peer], backend: BackendType
    ) -> None:
        region = Region(here, pattern(SIZE), memory)
        _, remote = peer.register(SIZE, memory)
        succeed(here.write(region.desc, 0, remote, 0, SIZE, 0))
        peer.kill()
        successor = make_peer("there", backend)
        successor.meet(here)
        index, fresh = successor.register(SIZE, memory)
        succeed(here.write(region.desc, 0, fresh, 0, SIZE, 1))
        assert successor.content(index) == bytes(region)


class TestStopped:
    """A peer that hangs: its sockets stay open, and it does not answer."""

    def test_deadline(self, make_engine: Callable[..., IOEngine], make_peer: Callable[..., Peer]) -> None:
        config = RdmaBackendConfig()
        config.deadline_ms = 700
        engine, peer = make_engine("here", BackendType.TCP, config), make_peer("there", BackendType.TCP)
        peer.meet(engine)
        size = 128 << 20
        region = Region(engine, size)
        session = engine.create_session(region.desc, peer.register(size)[1])
        succeed(session.write(0, 0, 8, 0))
        peer.pause()
        try:
            status = session.write(0, 0, size, 1)
            assert status.WaitFor(100) == StatusCode.IN_PROGRESS
            assert finish(status) == StatusCode.ERR_RDMA_OP
        finally:
            peer.resume()
        message = status.Message()
        assert "there" in message
        assert "tcp" in message
        succeed(engine.write(region.desc, 0, region.desc, 8, 8, 2))

    def test_first_contact(
        self,
        make_engine: Callable[..., IOEngine],
        make_peer: Callable[..., Peer],
        backend: BackendType,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("MORI_IO_CP_TIMEOUT_MS", "600")
        engine, peer = make_engine("here", backend), make_peer("there", backend)
        peer.meet(engine)
        region = Region(engine, pattern(64))
        index, remote = peer.register(64)
        peer.pause()
        ticks: list[float] = []
        done = threading.Event()

        def tick() -> None:
            while not done.wait(0.02):
                ticks.append(time.monotonic())

        ticker = threading.Thread(target=tick)
        ticker.start()
        try:
            with pytest.raises(RuntimeError, match="there"):
                engine.write(region.desc, 0, remote, 0, 64, 0).Wait()
        finally:
            done.set()
            ticker.join()
            peer.resume()
        assert len(ticks) > 5, "other threads must run while one waits for the peer"
        succeed(engine.write(region.desc, 0, remote, 0, 64, 1))
        assert peer.content(index) == bytes(region)

    def test_others_go_on(
        self, memory: Memory, here: IOEngine, peer: Peer, make_peer: Callable[..., Peer], backend: BackendType
    ) -> None:
        other = make_peer("other", backend)
        other.meet(here)
        region = Region(here, pattern(SIZE), memory)
        _, stuck = peer.register(SIZE, memory)
        index, remote = other.register(SIZE, memory)
        sessions = [here.create_session(region.desc, desc) for desc in (stuck, remote)]
        for session in sessions:
            succeed(session.write(0, 0, 8, 0))
        peer.pause()
        try:
            waiting = [sessions[0].write(0, 0, SIZE, uid) for uid in range(8)]
            for uid in range(8):
                succeed(sessions[1].write(0, 0, SIZE, uid))
        finally:
            peer.resume()
        assert other.content(index) == bytes(region)
        for status in waiting:
            succeed(status)


# A parent that never loaded mori forks two children; each starts its own engine.
FORK_BOTH = """
import os
from support import pattern
from mori.io import BackendType
from mori import _core
backend = BackendType[os.environ["BACKEND"]]

import multiprocessing
from support import _serve

def child(key):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, {}), daemon=True)
    process.start()
    theirs.close()
    def call(name, *args):
        ours.send((name, args))
        assert ours.poll(20), name
        fine, result = ours.recv()
        assert fine, result
        return result
    call.desc = call("start", key, int(backend), {})
    return call

left, right = child("left"), child("right")
assert not _core.loaded()
left("know", right.desc); right("know", left.desc)
source, _ = left("register", pattern(1 << 16))
target, packed = right("register", 1 << 16)
offs = list(range(0, 1 << 16, 4096))
assert left("transfer", "batch_write", source, offs, packed, offs[::-1], [4096] * 16) == 0
content, expected = right("content", target), pattern(1 << 16)
for at, to in zip(offs, offs[::-1]):
    assert content[to:to + 4096] == expected[at:at + 4096]
back, _ = left("register", 1 << 16)
assert left("transfer", "batch_read", back, [0], packed, [0], [1 << 16]) == 0
assert left("content", back) == content
print("moved")
"""

# The child is forked first and starts mori by itself; the parent starts it afterwards.
FORK_THEN_PARENT = """
import os
from support import Peer, Region, pattern, new_engine, succeed
from mori.io import BackendType
import mori.io, multiprocessing
from support import _serve
backend = BackendType[os.environ["BACKEND"]]
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe()
process = context.Process(target=_serve, args=(theirs, {}), daemon=True)
process.start()
theirs.close()

def call(name, *args):
    ours.send((name, args))
    assert ours.poll(20), name
    fine, result = ours.recv()
    assert fine, result
    return result

from mori.io import EngineDesc, MemoryDesc
engine = new_engine("parent", backend)
engine.register_remote_engine(EngineDesc.unpack(call("start", "child", int(backend), {})))
call("know", engine.get_engine_desc().pack())
region = Region(engine, pattern(1 << 16))
index, packed = call("register", 1 << 16)
succeed(engine.write(region.desc, 0, MemoryDesc.unpack(packed), 0, 1 << 16, 0))
assert call("content", index) == bytes(region)
print("moved")
"""


@pytest.mark.parametrize("script", [FORK_BOTH, FORK_THEN_PARENT], ids=["both children", "child and parent"])
def test_forked(backend: BackendType, script: str) -> None:
    assert run_script(script, BACKEND=backend.name) == "moved\n"


def test_spawned_while_started(here: IOEngine, make_peer: Callable[..., Peer], backend: BackendType) -> None:
    assert here.get_engine_desc().pid == os.getpid()
    late = make_peer("late", backend)
    late.meet(here)
    region = Region(here, pattern(64))
    index, remote = late.register(64)
    succeed(here.write(region.desc, 0, remote, 0, 64, 0))
    assert late.content(index) == bytes(region)


def test_from_a_fork_server(here: IOEngine, make_peer: Callable[..., Peer], backend: BackendType) -> None:
    late = make_peer("late", backend, method="forkserver")
    late.meet(here)
    region = Region(here, pattern(64))
    index, remote = late.register(64)
    succeed(here.write(region.desc, 0, remote, 0, 64, 0))
    assert late.content(index) == bytes(region)
