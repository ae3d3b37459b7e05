# SPDX-License-Identifier: MIT
"""mori.io between two hosts, on RDMA: run on both nodes of tests/rdma/vm, as tests/rdma/run does.

    python tests/rdma/hosts.py transfer    writes and reads of many sizes, notifications, an access that is refused
    python tests/rdma/hosts.py loss        the same while the network loses packets
    python tests/rdma/hosts.py nic-down    two NICs, of which one goes down in mid-transfer and comes up again
    python tests/rdma/hosts.py killed      the peer is killed in mid-transfer
    python tests/rdma/hosts.py deaf        no RDMA packet reaches the peer, and the send queue is full
    python tests/rdma/hosts.py address     the network interface loses the address that RDMA uses, and gets it back

Node 0 is the target and does what node 1 asks of it. Every byte is checked, and that the path is RDMA.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from mori.io import (
    BackendType,
    EngineDesc,
    IOEngine,
    IOEngineConfig,
    IOEngineSession,
    MemoryDesc,
    RdmaBackendConfig,
    StatusCode,
    TransferStatus,
)
from mori.tensor_utils import buffer_span

AUTH = b"hosts"
PORT = 7700
PATIENCE_MS = 90_000  # for operations that take milliseconds on real hardware
MIB = 1 << 20
SIZES = (1, 63, 4096, 4097, 65_536, MIB, 5 * MIB + 3)
LOSS = "2%"
# What goes to port 4791, RoCE's, finds no way in: its rule comes before the one that finds this node's own addresses.
DROP = ("add pref 10 table local", "add pref 5 ipproto udp dport 4791 blackhole", "del pref 0")
HEAR = ("add pref 0 table local", "del pref 5", "del pref 10")


def digest(content: bytes | bytearray | memoryview) -> str:
    return hashlib.blake2b(content).hexdigest()


class End:
    """An engine of a node, with its memory. The other node calls the methods of the target's."""

    def __init__(self, **fields: int) -> None:
        node = os.environ["RDMA_VM_NODE"]
        self.engine = IOEngine(f"node{node}", IOEngineConfig(os.environ[f"RDMA_VM_IP{node}"], 0))
        config = RdmaBackendConfig()
        for name, value in {"deadline_ms": PATIENCE_MS, **fields}.items():
            assert hasattr(config, name), name
            setattr(config, name, value)
        self.engine.create_backend(BackendType.RDMA, config)
        self.buffers: list[bytearray] = []
        self.descs: list[MemoryDesc] = []

    def meet(self, packed: bytes) -> bytes:
        self.engine.register_remote_engine(EngineDesc.unpack(packed))
        return self.engine.get_engine_desc().pack()

    def region(self, size: int, seed: int) -> bytes:
        self.buffers.append(bytearray(random.Random(seed).randbytes(size)))
        self.descs.append(self.engine.register_memory(*buffer_span(self.buffers[-1])))
        return self.descs[-1].pack()

    def digest(self, index: int, start: int, size: int) -> str:
        return digest(memoryview(self.buffers[index])[start : start + size])

    def deregister(self, index: int) -> None:
        self.engine.deregister_memory(self.descs[index])

    def told(self, key: str, uid: int) -> bool:
        """Whether the notification of a transfer comes, in a while."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while (status := self.engine.pop_inbound_transfer_status(key, uid)) is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return status.Succeeded()

    def die(self) -> None:
        os._exit(0)

    def hear(self, does: bool) -> None:
        """Have this node drop the RDMA packets that come, and no others, or no more."""
        rules = HEAR if does else DROP
        for rule in rules:
            subprocess.run(["ip", "rule", *rule.split()], check=True)


def serve(fields: dict[str, int]) -> None:
    """Serve the other node's requests until it disconnects."""
    end = End(**fields)
    with Listener(("", PORT), authkey=AUTH) as listener:
        subprocess.run(["rdma-vm-barrier", f"{os.environ['CASE']}.serves"], check=True)
        with listener.accept() as calls:
            while True:
                try:
                    name, args = calls.recv()
                except EOFError:
                    return
                calls.send(getattr(end, name)(*args))


class Peer:
    """The target, called from the other node."""

    def __init__(self, calls: Connection) -> None:
        self._calls = calls

    def __call__(self, name: str, *args: Any) -> Any:
        self._calls.send((name, args))
        return self._calls.recv()

    def forget(self, name: str) -> None:
        """Call without an answer."""
        self._calls.send((name, ()))


class Pair:
    """A region at each end, and a session between them."""

    def __init__(self, here: End, peer: Peer, size: int) -> None:
        self.here, self.peer = here, peer
        here.meet(peer("meet", here.engine.get_engine_desc().pack()))
        here.region(size, 1)
        self.remote = MemoryDesc.unpack(peer("region", size, 2))
        self.buffer = here.buffers[0]
        session = here.engine.create_session(here.descs[0], self.remote)
        assert session is not None, here.engine.describe()
        self.session: IOEngineSession = session

    def succeed(self, status: TransferStatus) -> None:
        code = status.WaitFor(PATIENCE_MS)
        assert code == StatusCode.SUCCESS, f"{code}: {status.Message()}; {self.session.describe()}"

    def on_rdma(self) -> None:
        path = self.session.describe()["path"]
        print(f"path {path}: {self.session.describe()}", flush=True)
        assert path.startswith("verbs"), self.session.describe()

    def on_rdma_again(self) -> None:
        """Before long, transfers go by RDMA, and right."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while True:
            self.buffer[:MIB] = random.Random(time.monotonic_ns()).randbytes(MIB)
            self.succeed(self.session.write(0, 0, MIB, 20))
            self.same(0, MIB)
            if self.session.describe()["path"].startswith("verbs"):
                print("again:", self.session.describe(), flush=True)
                return
            assert time.monotonic() < deadline, self.session.describe()
            time.sleep(0.1)

    def same(self, start: int, size: int) -> None:
        """Both ends have the same bytes there."""
        assert self.peer("digest", 0, start, size) == digest(memoryview(self.buffer)[start : start + size])


# ---- what node 1 does ----


def transfer(here: End, peer: Peer) -> None:
    pair = Pair(here, peer, 8 * MIB)
    session, key = pair.session, here.engine.get_engine_desc().key
    for uid, size in enumerate(SIZES, 100):
        pair.succeed(session.write(uid, uid, size, uid))
        pair.same(uid, size)
        assert peer("told", key, uid)
    pair.on_rdma()
    before = peer("digest", 0, 0, 8 * MIB)
    pair.succeed(session.read(0, 0, 8 * MIB, 200))
    assert digest(pair.buffer) == before
    pair.buffer[:] = random.Random(3).randbytes(8 * MIB)
    offsets = list(range(0, 4 * MIB, 8192))  # every other page, backwards
    pair.succeed(session.batch_write(offsets, offsets[::-1], [4096] * len(offsets), 201))
    assert peer("told", key, 201)
    for at, to in list(zip(offsets, offsets[::-1], strict=True))[::37]:
        assert peer("digest", 0, to, 4096) == digest(pair.buffer[at : at + 4096])
    peer("deregister", 0)
    status = session.write(0, 0, 4096, 202)
    assert status.WaitFor(PATIENCE_MS) not in (StatusCode.SUCCESS, StatusCode.IN_PROGRESS)
    print(f"a write after the end of its target: {status.Code()}: {status.Message()}")


def loss(here: End, peer: Peer) -> None:
    subprocess.run(["tc", "qdisc", "add", "dev", "eth0", "root", "netem", "loss", LOSS], check=True)
    try:
        transfer(here, peer)
        said = subprocess.run(["tc", "-s", "qdisc", "show", "dev", "eth0"], check=True, capture_output=True, text=True)
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "eth0", "root"], check=True)
    dropped = re.search(r"dropped (\d+)", said.stdout)
    assert dropped is not None, said.stdout
    print(f"{dropped[1]} packets were lost")
    assert int(dropped[1]) > 0


def sent(device: str) -> int:
    """Packets that a device has sent."""
    return int(Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts").read_text())


def nic_down(here: End, peer: Peer) -> None:
    pair = Pair(here, peer, 16 * MIB)
    before = sent("rxe0"), sent("rxe1")
    pair.succeed(pair.session.write(0, 0, 16 * MIB, 1))
    pair.on_rdma()
    packets = sent("rxe0") - before[0], sent("rxe1") - before[1]
    print("packets of the two NICs for 16 MiB:", packets)
    assert min(packets) > max(packets) / 4, "it was not spread over both"
    pair.buffer[:] = random.Random(4).randbytes(16 * MIB)
    statuses = [pair.session.write(0, 0, 16 * MIB, uid) for uid in range(2, 10)]
    pair.succeed(statuses[0])
    subprocess.run(["ip", "link", "set", "eth1", "down"], check=True)
    try:
        assert statuses[-1].WaitFor(0) == StatusCode.IN_PROGRESS, "the NIC was taken down too late"
        for status in statuses:
            pair.succeed(status)
        pair.same(0, 16 * MIB)
        pair.succeed(pair.session.write(0, 0, MIB, 10))
        print("with one NIC:", pair.session.describe())
    finally:
        subprocess.run(["ip", "link", "set", "eth1", "up"], check=True)
    pair.buffer[:MIB] = random.Random(5).randbytes(MIB)
    pair.succeed(pair.session.write(0, 0, MIB, 20))
    pair.same(0, MIB)


def killed(here: End, peer: Peer) -> None:
    pair = Pair(here, peer, 16 * MIB)
    pair.succeed(pair.session.write(0, 0, 16 * MIB, 1))
    pair.on_rdma()
    soon = pair.session.with_deadline(5000)
    statuses = [soon.write(0, 0, 16 * MIB, uid) for uid in range(2, 10)]
    pair.succeed(statuses[0])
    peer.forget("die")
    codes = [status.WaitFor(PATIENCE_MS) for status in statuses]
    print(codes, statuses[-1].Message())
    assert StatusCode.IN_PROGRESS not in codes
    assert codes[-1] != StatusCode.SUCCESS, "the peer was killed too late"


def deaf(here: End, peer: Peer) -> None:
    pair = Pair(here, peer, 8 * MIB)
    pair.succeed(pair.session.write(0, 0, 8 * MIB, 1))
    pair.on_rdma()
    pair.buffer[:] = random.Random(6).randbytes(8 * MIB)
    offsets = list(range(0, 8 * MIB, 65_536))  # apart, so that each is a work request
    peer("hear", False)
    try:
        start = time.monotonic()
        pair.succeed(pair.session.batch_write(offsets, offsets, [32_768] * len(offsets), 2))
        told = pair.session.describe()
        print(f"after {time.monotonic() - start:.1f} s: {told}", flush=True)
        for uid in range(3, 8):
            if any("rxe0" in why and "retr" in why for why in told["reasons"]):
                break
            # The devices were tried again meanwhile: they connect, by another network than they send by.
            pair.succeed(pair.session.write(0, 0, 32_768, uid))
            told = pair.session.describe()
            print(f"after {time.monotonic() - start:.1f} s: {told}", flush=True)
        assert not told["path"].startswith("verbs"), told
        assert any("rxe0" in why and "retr" in why for why in told["reasons"]), told
        for at in offsets:
            pair.same(at, 32_768)
    finally:
        peer("hear", True)
    pair.on_rdma_again()


def address(here: End, peer: Peer) -> None:
    """TCP goes by eth0, whose address stays."""
    pair = Pair(here, peer, 16 * MIB)
    pair.succeed(pair.session.write(0, 0, 16 * MIB, 1))
    pair.on_rdma()
    assert any("rxe1" in why for why in pair.session.describe()["reasons"]), "not by the NIC that loses its address"
    command = ["ip", "-4", "-o", "addr", "show", "dev", "eth1"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    own = shown.stdout.split()[3]  # 198.18.1.11/24
    pair.buffer[:] = random.Random(7).randbytes(16 * MIB)
    statuses = [pair.session.write(0, 0, 16 * MIB, uid) for uid in range(2, 10)]
    pair.succeed(statuses[0])
    subprocess.run(["ip", "addr", "del", own, "dev", "eth1"], check=True)
    try:
        assert statuses[-1].WaitFor(0) == StatusCode.IN_PROGRESS, "the address went too late"
        for status in statuses:
            pair.succeed(status)
        pair.same(0, 16 * MIB)
        print("without", own, pair.session.describe())
    finally:
        subprocess.run(["ip", "addr", "add", own, "dev", "eth1"], check=True)
    pair.on_rdma_again()


# Each with the fields of the backend's config, and the devices, if not all.
SCENARIOS: dict[str, tuple[Callable[[End, Peer], None], dict[str, int], str]] = {
    "transfer": (transfer, {}, ""),
    "loss": (loss, {}, ""),
    "nic-down": (nic_down, {"num_nics_per_transfer": 2}, ""),
    "killed": (killed, {}, ""),
    "deaf": (deaf, {"max_send_wr": 16}, ""),
    "address": (address, {}, "rxe1"),
}


def main() -> None:
    scenario, fields, devices = SCENARIOS[sys.argv[1]]
    if devices:
        os.environ["MORI_RDMA_DEVICES"] = devices
    if os.environ["RDMA_VM_NODE"] == "0":
        serve(fields)
        return
    subprocess.run(["rdma-vm-barrier", f"{os.environ['CASE']}.serves"], check=True)
    with Client((os.environ["RDMA_VM_IP0"], PORT), authkey=AUTH) as calls:
        scenario(End(**fields), Peer(calls))
    print("all well")


if __name__ == "__main__":
    main()
