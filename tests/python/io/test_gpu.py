# SPDX-License-Identifier: MIT
"""GPU memory: pairs of every kind, within a process and between processes, behind a GPU's work, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpus
from gpus import Memory
from mori.cpp import TransferStatus
from mori.io import BackendType, IOEngine, IOEngineConfig, MemoryDesc, MemoryLocationType, StatusCode, UnsupportedError
from support import Peer, Region, finish, introduce, pattern, run_script, succeed

SIZE = 1 << 20
FAR = 64 << 20
GPU, CPU = MemoryLocationType.GPU, MemoryLocationType.CPU
RDMA, TCP, XGMI = BackendType.RDMA, BackendType.TCP, BackendType.XGMI


@pytest.fixture
def on_gpu(gpu: None) -> Any:
    memory = Memory("gpu")
    yield memory
    memory.close()


def last_gpu() -> int:
    from mori import device

    return len(device.devices()) - 1


WAYS = [(backend, ends) for backend in (RDMA, TCP) for ends in ("gpu to gpu", "gpu to host", "host to gpu")]
WAYS.append((XGMI, "gpu to gpu"))


@pytest.mark.parametrize(("backend", "ends"), WAYS, ids=[f"{backend.name} {ends}" for backend, ends in WAYS])
def test_between_processes(
    on_gpu: Memory,
    make_engine: Callable[..., IOEngine],
    make_peer: Callable[..., Peer],
    backend: BackendType,
    ends: str,
) -> None:
    """A part of an allocation, 64 MiB from its beginning, on another GPU where there is one."""
    engine, peer = make_engine("here", backend), make_peer("there", backend)
    peer.meet(engine)
    local = Region(engine, pattern(SIZE, 1), Memory("host") if ends.startswith("host") else on_gpu, at=FAR)
    place = Memory("host") if ends.endswith("host") else Memory("gpu", device=last_gpu())
    index, remote = peer.register(pattern(SIZE, 2), place, at=FAR)
    session = engine.create_session(local.desc, remote)
    offs = list(range(0, SIZE, 4096))
    succeed(session.batch_read(offs, offs[::-1], [4096] * len(offs), 0))
    theirs = pattern(SIZE, 2)
    assert bytes(local) == b"".join(theirs[at : at + 4096] for at in offs[::-1])
    local.fill(pattern(SIZE, 3))
    succeed(session.write(4096, 0, SIZE - 4096, 1))
    assert peer.content(index) == pattern(SIZE, 3)[4096:] + theirs[-4096:]
    told = session.describe()
    assert told["path"].startswith("tcp" if backend is TCP else "p2p"), told
    if backend is XGMI:
        assert peer.call("pop", "here", 1) is None
        assert peer.desc.port == 0


@pytest.mark.parametrize("backend", [RDMA, XGMI], ids=lambda backend: backend.name)
def test_descriptors(on_gpu: Memory, make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
    from mori import device

    engine = make_engine("solo", backend)
    buffer = on_gpu.alloc(SIZE)
    whole = engine.register_memory(*buffer.span)
    part = engine.register_memory(buffer.ptr + 65536, 4096, 0, GPU)
    again = engine.register_memory(buffer.ptr + 65536, 4096, -1, MemoryLocationType.Unknown)
    assert [desc.id for desc in (whole, part, again)] == [0, 1, 2]
    for desc in (whole, part, again):
        assert desc.loc == GPU
        assert (desc.device_id, desc.device_bus_id, desc.numa_node) == (0, device.devices()[0].bus_id, -1)
        assert any(desc.ipc_handle) == (backend is XGMI)
        assert MemoryDesc.unpack(desc.pack()) == desc
    assert whole.ipc_handle == part.ipc_handle


def test_several_registrations_of_one_allocation(on_gpu: Memory, two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    source, target = on_gpu.alloc(pattern(SIZE)), on_gpu.alloc(SIZE)
    half = SIZE // 2
    pairs = [
        (left.register_memory(source.ptr + at, half, 0, GPU), right.register_memory(target.ptr + at, half, 0, GPU))
        for at in (0, half, 0)
    ]
    left.deregister_memory(pairs.pop()[0])
    for uid, (local, remote) in enumerate(pairs):
        succeed(left.create_session(local, remote).write(0, 0, half, uid))
    assert target.read() == source.read()


def test_an_engine_and_itself(on_gpu: Memory) -> None:
    """Both tensors are registered with one engine, and no peer with it."""
    with IOEngine("solo", IOEngineConfig("", 0)) as engine:
        engine.create_backend(XGMI)
        assert engine.get_engine_desc().port == 0
        source, target = on_gpu.alloc(pattern(SIZE)), on_gpu.alloc(SIZE, device=last_gpu())
        here, there = (engine.register_memory(*buffer.span) for buffer in (source, target))
        session = engine.create_session(here, there)
        status = session.write(0, 0, SIZE, session.allocate_transfer_uid())
        assert finish(status) == StatusCode.SUCCESS
        assert status.Message() == ""
        assert target.read() == pattern(SIZE)
        [status] = engine.batch_read([here], [[0]], [there], [[4096]], [[4096]], [7])
        succeed(status)
        assert source.read(4096) == pattern(SIZE)[4096:8192]
        assert engine.pop_inbound_transfer_status("solo", 7) is None
        assert session.describe()["backend"] == "XGMI"
        assert engine.create_session(here, engine.register_memory(*Memory("host").alloc(64).span)) is None


def test_auto_xgmi(on_gpu: Memory, make_engine: Callable[..., IOEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORI_DISABLE_AUTO_XGMI", "0")
    left, right = make_engine("left"), make_engine("right")
    monkeypatch.setenv("MORI_DISABLE_AUTO_XGMI", "1")
    plain = make_engine("plain")
    introduce(left, right, plain)
    local = Region(left, pattern(4096), on_gpu)
    for engine, backend in ((right, "XGMI"), (plain, "XGMI")):
        remote = Region(engine, 4096, on_gpu)
        session = left.create_session(local.desc, remote.desc)
        succeed(session.write(0, 0, 4096, 0))
        assert bytes(remote) == pattern(4096)
        assert session.describe()["backend"] == backend
    assert [b["type"] for b in left.describe()["backends"]] == ["XGMI", "RDMA"]
    assert [b["type"] for b in plain.describe()["backends"]] == ["RDMA"]
    assert left.get_engine_desc().port > 1


class TestAfter:
    """``after=``: a transfer begins when the GPU has come so far."""

    @pytest.fixture
    def pair(self, on_gpu: Memory, two_engines: tuple[IOEngine, IOEngine]) -> tuple[IOEngine, Region, Region]:
        left, right = two_engines
        return left, Region(left, SIZE, on_gpu), Region(right, SIZE, on_gpu)

    def produce(self, stream: Any, target: Region, source: Any) -> None:
        from mori import device

        device.copy(target.memory.ptr, source.ptr, SIZE, stream=stream)

    @pytest.mark.parametrize("by", ["event", "stream"])
    def test_what_the_gpu_has_yet_to_write(
        self, pair: tuple[IOEngine, Region, Region], on_gpu: Memory, by: str
    ) -> None:
        from mori import device

        engine, here, there = pair
        session = engine.create_session(here.desc, there.desc)
        source = on_gpu.alloc(pattern(SIZE))
        with device.Stream() as stream, device.Event() as event:
            statuses: list[TransferStatus]
            if gpus.real():
                self.produce(stream, here, source)
                statuses = self.submit(engine, session, here, there, self.gate(by, stream, event))
            else:
                with gpus.hold():
                    self.produce(stream, here, source)
                    gate = self.gate(by, stream, event)
                    statuses = self.submit(engine, session, here, there, gate)
                    event.record(stream)  # what was recorded at the time of the call counts
                    assert all(status.WaitFor(5) == StatusCode.IN_PROGRESS for status in statuses)
            for status in statuses:
                succeed(status)
            stream.wait(10)
        assert bytes(there) == pattern(SIZE)

    def gate(self, by: str, stream: Any, event: Any) -> Any:
        event.record(stream)
        return event if by == "event" else stream

    def submit(self, engine: IOEngine, session: Any, here: Region, there: Region, gate: Any) -> list[TransferStatus]:
        half = SIZE // 2
        return [
            session.write(0, 0, half, 0, after=gate),
            session.batch_write([half], [half], [half], 1, after=gate, tag="late", deadline_ms=20_000),
            engine.write(here.desc, 0, there.desc, 0, 4096, 2, after=gate),
            *engine.batch_write(
                [here.desc] * 2, [[0], [half]], [there.desc] * 2, [[0], [half]], [[8], [8]], [3, 4], after=gate
            ),
        ]

    def test_without_it_the_bytes_are_others(self, on_gpu: Memory, make_engine: Callable[..., IOEngine]) -> None:
        """So that the tests here could fail: a host reads what the GPU has not written yet."""
        from mori import device

        gpus.need_emulated()
        engine = make_engine("solo", TCP)
        staged, there = device.HostMemory(SIZE), Region(engine, SIZE)
        staged.fill(0)
        desc = engine.register_memory(staged.ptr, SIZE, -1, CPU)
        source = on_gpu.alloc(pattern(SIZE))
        for wrong in (True, False):
            with device.Stream() as stream, gpus.hold():
                device.copy(staged, source.ptr, SIZE, stream=stream)
                status = engine.write(desc, 0, there.desc, 0, SIZE, 0, after=None if wrong else stream)
                if wrong:
                    succeed(status)
            stream_done(status)
            assert (bytes(there) == pattern(SIZE)) is not wrong
            if wrong:
                staged.fill(0)
        engine.deregister_memory(desc)
        staged.close()

    def test_read(self, pair: tuple[IOEngine, Region, Region]) -> None:
        from mori import device

        engine, here, there = pair
        there.fill(pattern(SIZE, 4))
        with device.Stream() as stream:
            device.copy(here.memory.ptr, here.memory.ptr + SIZE // 2, SIZE // 2, stream=stream)
            status = engine.create_session(here.desc, there.desc).read(0, 0, SIZE, 0, after=stream)
            succeed(status)
        assert bytes(here) == pattern(SIZE, 4)

    def test_cancel(self, pair: tuple[IOEngine, Region, Region]) -> None:
        from mori import device

        gpus.need_emulated()
        engine, here, there = pair
        session = engine.create_session(here.desc, there.desc)
        with device.Stream() as stream:
            with gpus.hold():
                device.copy(here.memory.ptr, here.memory.ptr + SIZE // 2, SIZE // 2, stream=stream)
                status = session.write(0, 0, 8, 9, after=stream)
                later = session.write(0, 8, 8, 10)
                session.cancel(9)
                assert finish(status) == StatusCode.ERR_BAD_STATE
                assert "waiting for the GPU" in status.Message()
            succeed(later)
            stream.wait(10)

    @pytest.mark.parametrize("wrong", [0, 7, "stream", object(), 1.5, True])
    def test_wrong_types(self, pair: tuple[IOEngine, Region, Region], wrong: object) -> None:
        engine, here, there = pair
        session = engine.create_session(here.desc, there.desc)
        for call in (
            lambda: session.write(0, 0, 8, 0, after=wrong),
            lambda: session.batch_read([0], [0], [8], 0, after=wrong),
            lambda: engine.read(here.desc, 0, there.desc, 0, 8, 0, after=wrong),
            lambda: engine.batch_write([here.desc], [[0]], [there.desc], [[0]], [[8]], [0], after=wrong),
        ):
            with pytest.raises(TypeError, match="after must be an event or a stream"):
                call()

    def test_wrong_values(self, pair: tuple[IOEngine, Region, Region]) -> None:
        from mori import device

        engine, here, there = pair
        session = engine.create_session(here.desc, there.desc)
        never = type("Event", (), {"cuda_event": 0, "device": None})()
        with pytest.raises(ValueError, match="never recorded"):
            session.write(0, 0, 8, 0, after=never)
        stream = device.Stream()
        stream.close()
        with pytest.raises(RuntimeError, match="closed"):
            session.write(0, 0, 8, 0, after=stream)
        nowhere = type("Stream", (), {"cuda_stream": 0, "device": 99})()
        with pytest.raises(ValueError, match="GPU 99 does not exist"):
            session.write(0, 0, 8, 0, after=nowhere)
        default = type("Stream", (), {"cuda_stream": 0, "device": type("Device", (), {"index": 0})()})()
        succeed(session.write(0, 0, 8, 0, after=default))

    def test_the_gpu_fails(self, pair: tuple[IOEngine, Region, Region]) -> None:
        from mori import device

        engine, here, there = pair
        session = engine.create_session(here.desc, there.desc)
        succeed(session.write(0, 0, 8, 0))
        with device.Stream() as stream, gpus.failing("cuEventRecord=702"):
            status = session.write(0, 0, 8, 1, after=stream)
        assert finish(status) == StatusCode.ERR_GPU_OP
        assert "702" in status.Message()


def stream_done(status: TransferStatus) -> None:
    succeed(status)


class TestRefused:
    def test_wrong_place(self, on_gpu: Memory, engine: IOEngine) -> None:
        buffer, host = on_gpu.alloc(4096), Memory("host").alloc(4096)
        for args, words in (
            ((buffer.ptr, 4096, 99, GPU), "as memory of GPU 99, but it is memory of .* device 0"),
            ((buffer.ptr, 4097, 0, GPU), "outside of the allocation"),
            ((buffer.ptr, 4096, -1, CPU), "register it with location GPU and device 0"),
            ((host.ptr, 4096, 0, GPU), "register it with location CPU"),
        ):
            with pytest.raises(ValueError, match=words):
                engine.register_memory(*args)

    def test_not_contiguous(self, engine: IOEngine) -> None:
        tensor = type("Tensor", (), {"is_contiguous": lambda self: False})()
        with pytest.raises(RuntimeError, match="input tensor must be contiguous"):
            engine.register_torch_tensor(tensor)

    def test_no_gpu_here(self) -> None:
        if gpus.real():
            pytest.skip("this host has a GPU")
        said = run_script(
            "from mori.io import *\n"
            "from support import new_engine, Region\n"
            "engine = new_engine('gpuless')\n"
            "try:\n"
            "    engine.register_memory(4096, 4096, 0, MemoryLocationType.GPU)\n"
            "except UnsupportedError as err:\n"
            "    print(err)\n"
            "region = Region(engine, 64)\n"
            "engine.write(region.desc, 0, region.desc, 8, 8, 0).Wait()\n"
        )
        assert "as memory of GPU 0: no GPU: no CUDA device" in said

    def test_gpus_out_of_reach(self, gpu: None) -> None:
        """The third of three emulated GPUs has no link to the others: its memory goes through pinned memory."""
        gpus.need_emulated()
        said = run_script(
            "from gpus import Memory\n"
            "from mori.io import *\n"
            "from support import introduce, new_engine, Region, pattern, succeed\n"
            "left, right, only = new_engine('left'), new_engine('right'), new_engine('only', BackendType.XGMI)\n"
            "left.create_backend(BackendType.XGMI)\n"
            "right.create_backend(BackendType.XGMI)\n"
            "introduce(left, right)\n"
            "here, there = Region(left, pattern(9000), Memory('gpu')), Region(right, 9000, Memory('gpu', device=2))\n"
            "session = left.create_session(here.desc, there.desc)\n"
            "succeed(session.write(0, 0, 9000, 0))\n"
            "assert bytes(there) == pattern(9000)\n"
            "print(session.describe())\n"
            "mine, other = (Region(only, 8, Memory('gpu', device=n)).desc for n in (0, 2))\n"
            "print('session', only.create_session(mine, other))\n"
            "print(only.write(mine, 0, other, 0, 8, 0).Message())\n",
            FAKE_GPU_COUNT="3",
            **gpus.child_env(),
        )
        assert "'backend': 'RDMA'" in said
        assert "XGMI: no peer access from" in said
        assert "session None" in said
        assert "create a backend that can" in said

    def test_xgmi_and_host_memory(self, gpu: None, make_engine: Callable[..., IOEngine]) -> None:
        engine = make_engine("solo", XGMI)
        region = Region(engine, 64)
        assert engine.create_session(region.desc, region.desc) is None
        status = engine.write(region.desc, 0, region.desc, 8, 8, 0)
        assert finish(status) == StatusCode.ERR_BAD_STATE
        assert "not both regions are GPU memory" in status.Message()
        with pytest.raises(UnsupportedError, match="GPU"):
            engine.create_backend(BackendType.FABRIC)


class TestTorch:
    """Tensors of torch on real GPUs."""

    @pytest.fixture
    def torch(self) -> Any:
        return gpus.need_cuda_torch()

    def test_tensors(self, torch: Any, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        last = torch.cuda.device_count() - 1
        source = torch.arange(SIZE, dtype=torch.int32, device="cuda:0")
        target = torch.zeros(SIZE, dtype=torch.int32, device=f"cuda:{last}")
        here, there = left.register_torch_tensor(source), right.register_torch_tensor(target)
        assert (here.device_id, there.device_id, here.size) == (0, last, 4 * SIZE)
        succeed(left.create_session(here, there).write(0, 0, 4 * SIZE, 0))
        assert torch.equal(target.cpu(), source.cpu())
        assert torch.cuda.current_device() == 0
        with pytest.raises(RuntimeError, match="contiguous"):
            left.register_torch_tensor(source.view(1024, -1)[:, :7])

    @pytest.mark.parametrize("by", ["event", "stream", "default stream"])
    def test_after_a_kernel(self, torch: Any, two_engines: tuple[IOEngine, IOEngine], by: str) -> None:
        left, right = two_engines
        source = torch.zeros(SIZE, dtype=torch.int32, device="cuda:0")
        target = torch.zeros_like(source)
        session = left.create_session(left.register_torch_tensor(source), right.register_torch_tensor(target))
        succeed(session.write(0, 0, 8, 0))
        stream = torch.cuda.default_stream() if by == "default stream" else torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)  # cycles: a tenth of a second
            source.fill_(5)
            event = torch.cuda.Event()
            event.record()
        status = session.write(0, 0, 4 * SIZE, 1, after=event if by == "event" else stream)
        del event
        assert not status.Succeeded()
        succeed(status)
        assert int(target.min()) == 5
