# SPDX-License-Identifier: MIT
"""Transfers over RDMA devices: what they use, what is reported when they cannot, and what happens when devices fail."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nics
from mori.io import BackendType, IOEngine, IOEngineSession, PollCqMode, RdmaBackendConfig, StatusCode
from support import Peer, Region, eventually, introduce, new_engine, pattern, succeed

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("nic", "by_device")


@pytest.fixture
def by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of this host reach each other by RDMA devices, as engines of two hosts do."""
    monkeypatch.setenv("FABRIC_PROVIDER", "verbs,tcp")


class Pair:
    """Two engines of this process, a region each, and a session from one to the other."""

    def __init__(self, make: Callable[..., IOEngine], size: int, **config: Any) -> None:
        self.left = make("left", BackendType.RDMA, RdmaBackendConfig(**config))
        self.right = make("right", BackendType.RDMA, RdmaBackendConfig(**config))
        introduce(self.left, self.right)
        self.here, self.there = Region(self.left, pattern(size)), Region(self.right, size)
        session = self.left.create_session(self.here.desc, self.there.desc)
        assert session is not None
        self.session = session

    @property
    def path(self) -> str:
        return str(self.session.describe()["path"])

    @property
    def reasons(self) -> str:
        return "; ".join(self.session.describe()["reasons"])


@pytest.fixture
def connect(make_engine: Callable[..., IOEngine]) -> Callable[..., Pair]:
    return lambda size=MIB, **config: Pair(make_engine, size, **config)


def test_batches_both_ways(connect: Callable[..., Pair]) -> None:
    pair = connect(4 * MIB)
    assert pair.path == "verbs/rdma"
    block, count = 8192, 256
    ours = [2 * i * block for i in range(count)]
    theirs = [2 * (count - 1 - i) * block for i in range(count)]
    succeed(pair.session.batch_write(ours, theirs, [block] * count, 1))
    for here, there in zip(ours, theirs, strict=True):
        assert bytes(pair.there.buffer[there : there + block]) == bytes(pair.here.buffer[here : here + block])
    pair.there.buffer[:] = pattern(4 * MIB, 2)
    succeed(pair.session.batch_read(ours, theirs, [block] * count, 2))
    for here, there in zip(ours, theirs, strict=True):
        assert bytes(pair.there.buffer[there : there + block]) == bytes(pair.here.buffer[here : here + block])


def test_the_target_is_told_after_the_bytes(connect: Callable[..., Pair]) -> None:
    pair = connect(MIB)
    for uid in range(50):
        pair.here.buffer[:] = pattern(MIB, uid)
        pair.session.batch_write([0], [0], [MIB], uid)
        eventually(lambda uid=uid: pair.right.pop_inbound_transfer_status("left", uid) is not None)
        assert bytes(pair.there) == bytes(pair.here)


def test_without_notifications_nothing_is_told(connect: Callable[..., Pair]) -> None:
    pair = connect(enable_notification=False)
    succeed(pair.session.write(0, 0, MIB, 1))
    assert pair.right.pop_inbound_transfer_status("left", 1) is None


def test_two_devices_share_a_transfer(connect: Callable[..., Pair]) -> None:
    nics.need_emulated()
    before = nics.bytes_done(0), nics.bytes_done(1)
    pair = connect(8 * MIB, num_nics_per_transfer=2, qp_per_transfer=2)
    succeed(pair.session.write(0, 0, 8 * MIB, 1))
    assert bytes(pair.there) == bytes(pair.here)
    assert re.search(r"verbs/rdma: emu0:1 \(.+\), emu1:1 \(.+\)", pair.reasons)
    for device in (0, 1):
        assert nics.bytes_done(device) - before[device] >= 2 * MIB


@pytest.mark.parametrize("mode", PollCqMode.__members__.values(), ids=lambda mode: mode.name)
def test_both_ways_of_noticing_completions(connect: Callable[..., Pair], mode: PollCqMode) -> None:
    pair = connect(poll_cq_mode=mode)
    for uid in range(20):
        succeed(pair.session.write(0, 0, MIB, uid))
    time.sleep(0.05)  # long enough to sleep
    succeed(pair.session.read(0, 0, MIB, 99))
    assert bytes(pair.there) == bytes(pair.here)


def test_random_delays_of_devices(connect: Callable[..., Pair]) -> None:
    with nics.delays(3):
        pair = connect(2 * MIB, num_nics_per_transfer=2, qp_per_transfer=3, post_batch_size=5)
        statuses = [pair.session.write(i << 16, i << 16, 1 << 16, i) for i in range(32)]
        for status in statuses:
            succeed(status)
    assert bytes(pair.there) == bytes(pair.here)


class TestPeers:
    """Peers that are processes of their own."""

    @pytest.fixture
    def session(self, make_engine: Callable[..., IOEngine], make_peer: Callable[..., Peer]) -> IOEngineSession:
        self.peer = make_peer("there")
        engine = make_engine("here")
        self.peer.meet(engine)
        self.here = Region(engine, pattern(MIB))
        self.index, desc = self.peer.register(MIB)
        session = engine.create_session(self.here.desc, desc)
        assert session is not None
        return session

    def test_bytes_and_notification_arrive(self, session: IOEngineSession) -> None:
        succeed(session.write(0, 0, MIB, 1))
        assert session.describe()["path"] == "verbs/rdma"
        assert self.peer.content(self.index) == bytes(self.here)
        eventually(lambda: self.peer.call("pop", "here", 1) == StatusCode.SUCCESS.value)

    def test_the_peer_transfers_too(self, session: IOEngineSession) -> None:
        succeed(session.write(0, 0, MIB, 1))
        self.here.fill(bytes(MIB))
        packed = self.here.desc.pack()

        def by_device() -> bool:
            code = self.peer.call("transfer", "batch_write", self.index, [0], packed, [0], [MIB])
            assert code == StatusCode.SUCCESS.value
            [path] = self.peer.call("describe")["peers"][0]["paths"]
            return path["path"] == "verbs/rdma"

        eventually(by_device, 30)  # a very slow host may have used TCP for a while
        assert bytes(self.here) == pattern(MIB)

    def test_a_peer_that_is_killed(self, session: IOEngineSession) -> None:
        succeed(session.write(0, 0, MIB, 1))
        self.peer.kill()
        status = session.write(0, 0, MIB, 2)
        assert status.WaitFor(30_000) not in (StatusCode.SUCCESS, StatusCode.IN_PROGRESS)
        assert "there" in status.Message()


class TestDevicesThatFail:
    """What emulated devices are made to do."""

    @pytest.fixture(autouse=True)
    def _emulated(self) -> None:
        nics.need_emulated()

    def test_port_down_in_mid_transfer_and_up_again(
        self, connect: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MORI_RDMA_DEVICES", "emu0")
        pair = connect(8 * MIB)
        assert pair.path == "verbs/rdma"
        with nics.port_down(0):
            with nics.hold(0):
                status = pair.session.write(0, 0, 8 * MIB, 1)
            succeed(status)
            assert bytes(pair.there) == bytes(pair.here)
            assert pair.path.startswith("tcp")
            assert "verbs: broke" in pair.reasons
            eventually(lambda: pair.right.pop_inbound_transfer_status("left", 1) is not None)

        def again() -> bool:
            succeed(pair.session.write(0, 0, 4096, 2))
            return pair.path == "verbs/rdma"

        eventually(again)

    def test_a_device_that_is_removed(self, connect: Callable[..., Pair]) -> None:
        pair = connect()
        succeed(pair.session.write(0, 0, MIB, 1))
        with nics.removed(0):
            pair.here.buffer[:] = pattern(MIB, 7)
            succeed(pair.session.write(0, 0, MIB, 2))
            assert bytes(pair.there) == bytes(pair.here)

    def test_a_work_request_that_fails(self, connect: Callable[..., Pair]) -> None:
        pair = connect()
        nics.fail_next(0, 10)  # IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR
        pair.session.write(0, 0, MIB, 1).Wait()
        eventually(lambda: pair.session.write(0, 0, MIB, 2).WaitFor(10_000) == StatusCode.SUCCESS)
        assert bytes(pair.there) == bytes(pair.here)

    def test_memory_that_no_device_registers(self, connect: Callable[..., Pair]) -> None:
        with nics.failing("ibv_reg_mr=12"):
            pair = connect()
            succeed(pair.session.write(0, 0, MIB, 1))
            assert bytes(pair.there) == bytes(pair.here)


class TestWhatIsMissing:
    """One line that says it, and an error where RDMA is required."""

    @pytest.fixture(autouse=True)
    def _emulated(self) -> None:
        nics.need_emulated()

    @pytest.fixture(params=["no device", "unknown name", "none left", "ports down", "not allowed", "excluded"])
    def says(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        if request.param == "no device":
            monkeypatch.setenv("FAKE_VERBS_COUNT", "0")
            yield "no active RDMA device on this host"
        elif request.param == "unknown name":
            monkeypatch.setenv("MORI_RDMA_DEVICES", "mlx5_0")
            yield "MORI_RDMA_DEVICES names mlx5_0, but this host has emu0, emu1"
        elif request.param == "none left":
            monkeypatch.setenv("MORI_RDMA_DEVICES", "^emu0,emu1")
            yield "no active RDMA device on this host"
        elif request.param == "ports down":
            with nics.port_down(0), nics.port_down(1):
                yield "port is down"
        elif request.param == "not allowed":
            with nics.failing("ibv_open_device=1"):
                yield "operation not permitted"
        else:
            monkeypatch.setenv("FABRIC_PROVIDER", "tcp")
            yield "verbs is not available"

    def test_it_is_told_and_done_without(self, connect: Callable[..., Pair], says: str) -> None:
        pair = connect()
        succeed(pair.session.write(0, 0, MIB, 1))
        assert pair.path.startswith("tcp")
        assert says in pair.reasons
        notes = [note for backend in pair.left.describe()["backends"] for note in backend["notes"]]
        assert [note for note in notes if says in note]

    def test_it_is_an_error_where_rdma_is_required(self, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MORI_REQUIRE_RDMA", "1")
        engine = new_engine("strict", None)
        with pytest.raises(RuntimeError, match="RDMA") as raised:
            engine.create_backend(BackendType.RDMA)
        assert says in str(raised.value)
        engine.close()


WRONG = {
    "MORI_IO_SL": "16",
    "MORI_IO_TC": "256",
    "MORI_RDMA_TC": "high",
    "MORI_IO_TC_DISABLE": "perhaps",
    "MORI_IB_GID_INDEX": "-1",
    "MORI_IB_PATH_MTU": "1500",
    "MORI_IO_QP_MAX_SEND_WR": "0",
    "MORI_IO_QP_MAX_CQE": "many",
    "MORI_IO_QP_MAX_MSG_SGE": "-2",
    "MORI_IO_QP_MAX_INLINE_DATA": "64k",
    "MORI_IO_ENABLE_ASYNC_EVENTS": "sometimes",
    "MORI_IO_RDMA_NIC_IDX": "first",
    "MORI_IO_NUM_NICS_PER_TRANSFER": "0",
}


@pytest.mark.parametrize(("name", "value"), WRONG.items(), ids=WRONG)
def test_malformed_variables_are_ignored(
    connect: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    pair = connect(4096)
    succeed(pair.session.write(0, 0, 4096, 1))
    assert pair.path == "verbs/rdma"


def test_queues_of_any_size_do(connect: Callable[..., Pair], make_engine: Callable[..., IOEngine]) -> None:
    tiny = RdmaBackendConfig(qp_per_transfer=3, notif_per_qp=1)
    tiny.max_send_wr, tiny.max_cqe_num, tiny.max_msg_sge = 2, 12, 1
    left, right = make_engine("left", BackendType.RDMA, tiny), make_engine("right", BackendType.RDMA, tiny)
    introduce(left, right)
    here, there = Region(left, pattern(MIB)), Region(right, MIB)
    count, block = 128, MIB // 256
    offsets = [2 * i * block for i in range(count)]
    session = left.create_session(here.desc, there.desc)
    assert session is not None
    for uid in range(5):
        succeed(session.batch_write(offsets, offsets, [block] * count, uid))
        eventually(lambda uid=uid: right.pop_inbound_transfer_status("left", uid) is not None)
    for at in offsets:
        assert bytes(there.buffer[at : at + block]) == bytes(here.buffer[at : at + block])
