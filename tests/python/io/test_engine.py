# SPDX-License-Identifier: MIT
"""IOEngine: backends, peers, registration, and single reads and writes."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable

import pytest

import gpus
from mori.io import (
    BackendType,
    EngineDesc,
    FabricBackendConfig,
    IOEngine,
    IOEngineConfig,
    MemoryDesc,
    MemoryLocationType,
    RdmaBackendConfig,
    StatusCode,
    UnsupportedError,
)
from mori.tensor_utils import buffer_span
from support import Region, finish, introduce, need_torch, pattern, run_script, succeed

CPU = MemoryLocationType.CPU


class TestConstruction:
    def test_positional_and_keyword(self) -> None:
        for engine in (IOEngine("k", IOEngineConfig()), IOEngine(key="k", config=IOEngineConfig())):
            assert engine.get_engine_desc().key == "k"
            engine.close()

    @pytest.mark.parametrize("args", [(1, IOEngineConfig()), ("k", None), ("k", RdmaBackendConfig()), ("k",)])
    def test_wrong_types(self, args: tuple[object, ...]) -> None:
        with pytest.raises(TypeError):
            IOEngine(*args)

    def test_native_engine_is_reachable(self, engine: IOEngine) -> None:
        from mori import cpp

        assert isinstance(engine._engine, cpp.IOEngine)
        assert engine._engine.GetEngineDesc() == engine.get_engine_desc()

    def test_close_is_final_and_repeatable(self) -> None:
        engine = IOEngine("closing", IOEngineConfig("127.0.0.1", 0))
        engine.create_backend(BackendType.RDMA)
        engine.close()
        engine.close()
        for call in (
            lambda: engine.create_backend(BackendType.TCP),
            lambda: engine.register_memory(4096, 16, -1, CPU),
            engine.get_engine_desc,
        ):
            with pytest.raises(RuntimeError):
                call()

    def test_context_manager(self) -> None:
        with IOEngine("block", IOEngineConfig("127.0.0.1", 0)) as engine:
            engine.create_backend(BackendType.RDMA)
        with pytest.raises(RuntimeError):
            engine.allocate_transfer_uid()


class TestBackends:
    def test_port_is_bound_after_creation(self, make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
        engine = make_engine("bound", None)
        assert engine.create_backend(backend) is None
        port = engine.get_engine_desc().port
        assert port > 1
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass

    def test_given_port_is_used(self, make_engine: Callable[..., IOEngine]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        assert make_engine("fixed", port=port).get_engine_desc().port == port

    def test_port_taken(self, make_engine: Callable[..., IOEngine]) -> None:
        taken = make_engine("first").get_engine_desc().port
        second = make_engine("second", None, port=taken)
        with pytest.raises(RuntimeError, match=str(taken)):
            second.create_backend(BackendType.RDMA)

    def test_port_one_is_refused(self, make_engine: Callable[..., IOEngine]) -> None:
        with pytest.raises(RuntimeError):
            make_engine("sentinel", None, port=1).create_backend(BackendType.RDMA)

    def test_second_creation_is_no_op(self, make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
        engine = make_engine("twice", backend)
        port = engine.get_engine_desc().port
        engine.create_backend(backend)
        engine.create_backend(backend, RdmaBackendConfig(qp_per_transfer=2))
        assert engine.get_engine_desc().port == port

    @pytest.mark.parametrize("config", [None, RdmaBackendConfig()], ids=["None", "config"])
    def test_default_config(self, make_engine: Callable[..., IOEngine], config: RdmaBackendConfig | None) -> None:
        make_engine("defaults", None).create_backend(BackendType.RDMA, config)

    def test_keywords(self, make_engine: Callable[..., IOEngine]) -> None:
        make_engine("kw", None).create_backend(type=BackendType.RDMA, config=RdmaBackendConfig())

    @pytest.mark.parametrize("wrong", [BackendType.Unknown, 2, "RDMA", None, MemoryLocationType.GPU, StatusCode(2)])
    def test_unknown_type(self, make_engine: Callable[..., IOEngine], wrong: object) -> None:
        with pytest.raises(NotImplementedError, match="backend not implemented yet"):
            make_engine("odd", None).create_backend(wrong)

    @pytest.mark.parametrize("config", [None, FabricBackendConfig()], ids=["None", "config"])
    def test_fabric_says_why_not(
        self, make_engine: Callable[..., IOEngine], config: FabricBackendConfig | None
    ) -> None:
        engine = make_engine("alone", None)
        with pytest.raises(UnsupportedError, match="GPU"):
            engine.create_backend(BackendType.FABRIC, config)

    @pytest.mark.parametrize("config", ["None", "XgmiBackendConfig()"])
    def test_xgmi_says_why_not(self, config: str) -> None:
        if gpus.real():
            pytest.skip("this host has a GPU")
        said = run_script(
            "from mori.io import BackendType, IOEngine, IOEngineConfig, UnsupportedError, XgmiBackendConfig\n"
            "try:\n"
            f"    IOEngine('gpuless', IOEngineConfig()).create_backend(BackendType.XGMI, {config})\n"
            "except UnsupportedError as err:\n"
            "    print(err)\n"
        )
        assert "no GPU: no CUDA device: libcuda.so.1" in said

    def test_rdma_required(self, make_engine: Callable[..., IOEngine], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MORI_REQUIRE_RDMA", "1")
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            pytest.skip("this host has an RDMA device")
        with pytest.raises(RuntimeError, match="RDMA"):
            make_engine("strict", None).create_backend(BackendType.RDMA)

    def test_remove(self, make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
        engine = make_engine("removing", backend)
        region = Region(engine, 32)
        engine.remove_backend(BackendType.XGMI)
        assert engine.remove_backend(backend) is None
        engine.remove_backend(backend)
        assert engine.create_session(region.desc, region.desc) is None
        engine.create_backend(backend)
        succeed(engine.write(region.desc, 0, region.desc, 16, 8, 0))

    def test_describe(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        described = two_engines[0].describe()
        assert isinstance(described, dict)
        assert "left" in str(described)
        assert "right" in str(described)


class TestPeers:
    def test_register_is_idempotent(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        for _ in range(3):
            assert left.register_remote_engine(right.get_engine_desc()) is None
        here, there = Region(left, pattern(64)), Region(right, 64)
        succeed(left.write(here.desc, 0, there.desc, 0, 64, 0))
        assert bytes(there) == bytes(here)

    def test_deregister(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(64)), Region(right, 64)
        succeed(left.write(here.desc, 0, there.desc, 0, 64, 0))
        left.deregister_remote_engine(right.get_engine_desc())
        left.deregister_remote_engine(right.get_engine_desc())
        there.buffer[:] = bytes(64)
        status = left.write(here.desc, 0, there.desc, 0, 64, 1)
        assert finish(status).value > 10
        assert "right" in status.Message()
        assert bytes(there) == bytes(64)
        introduce(left, right)
        succeed(left.read(here.desc, 0, there.desc, 0, 64, 2))

    def test_registering_needs_no_network(self, engine: IOEngine) -> None:
        # 192.0.2.1 is reserved for documentation: nothing answers there.
        engine.register_remote_engine(EngineDesc.unpack(b"\x96\xa4gone\xa1n\xa1h\xa9192.0.2.1\xcd\x10\x92\x05"))

    @pytest.mark.parametrize("wrong", [None, "key", b"bytes", MemoryDesc()])
    def test_wrong_types(self, engine: IOEngine, wrong: object) -> None:
        for call in (engine.register_remote_engine, engine.deregister_remote_engine):
            with pytest.raises(TypeError):
                call(wrong)


class TestRegistration:
    def test_without_a_backend(self, make_engine: Callable[..., IOEngine]) -> None:
        desc = Region(make_engine("bare", None), 128).desc
        assert (desc.size, desc.loc) == (128, CPU)

    def test_memory_of_mmap(self, engine: IOEngine) -> None:
        with mmap.mmap(-1, 8192) as buffer:
            desc = engine.register_memory(*buffer_span(buffer))
            assert desc.data % mmap.PAGESIZE == 0
            engine.deregister_memory(desc)

    def test_keywords(self, engine: IOEngine) -> None:
        buffer = bytearray(16)
        ptr = buffer_span(buffer).ptr
        assert engine.register_memory(ptr=ptr, size=16, device_id=-1, mem_loc=CPU).size == 16

    def test_null_pointer(self, engine: IOEngine) -> None:
        with pytest.raises(ValueError, match="ptr"):
            engine.register_memory(0, 16, -1, CPU)

    @pytest.mark.parametrize(
        "args",
        [
            (-1, 16, -1, CPU),
            (2**64, 16, -1, CPU),
            ("4096", 16, -1, CPU),
            (4096.0, 16, -1, CPU),
            (4096, -1, -1, CPU),
            (4096, 2**64, -1, CPU),
            (4096, 16, 2**40, CPU),
            (4096, 16, -1, 1),
            (4096, 16, -1, None),
            (4096, 16, -1, BackendType.XGMI),
        ],
    )
    def test_wrong_types(self, engine: IOEngine, args: tuple[object, ...]) -> None:
        with pytest.raises(TypeError):
            engine.register_memory(*args)

    def test_deregister_unknown(self, engine: IOEngine) -> None:
        engine.deregister_memory(MemoryDesc())
        region = Region(engine, 16)
        engine.deregister_memory(region.desc)
        assert engine.deregister_memory(region.desc) is None
        with pytest.raises(TypeError):
            engine.deregister_memory(None)

    def test_same_buffer_twice(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here = Region(left, pattern(256))
        target = bytearray(256)
        first, second = (right.register_memory(*buffer_span(target)) for _ in range(2))
        assert first.id != second.id
        succeed(left.write(here.desc, 0, first, 0, 128, 0))
        right.deregister_memory(first)
        succeed(left.write(here.desc, 128, second, 128, 128, 1))
        assert target == here.buffer

    def test_sub_regions(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here = Region(left, pattern(64))
        target = bytearray(4096)
        base = buffer_span(target).ptr
        parts = [right.register_memory(base + 1024 * n + n, 64, -1, CPU) for n in range(4)]
        for n, part in enumerate(parts):
            succeed(left.write(here.desc, 0, part, 0, 64, n))
            assert bytes(target[1025 * n : 1025 * n + 64]) == bytes(here)

    def test_more_than_two_gigabytes(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, size = Region(left, pattern(4096)), 3 << 30
        with mmap.mmap(-1, size) as sparse:
            there = right.register_memory(*buffer_span(sparse))
            assert there.size == size
            succeed(left.write(here.desc, 0, there, size - 4096, 4096, 0))
            assert sparse[-4096:] == bytes(here)
            right.deregister_memory(there)


class _FakeTensor:
    """The part of a torch tensor that registration looks at."""

    def __init__(
        self, buffer: bytearray, device: str = "cpu", index: int | None = None, contiguous: bool = True
    ) -> None:
        self._span = buffer_span(buffer)
        self._contiguous = contiguous
        self.device = type("Device", (), {"type": device, "index": index})()

    def is_contiguous(self) -> bool:
        return self._contiguous

    def data_ptr(self) -> int:
        return self._span.ptr

    def nelement(self) -> int:
        return self._span.size // 2

    def element_size(self) -> int:
        return 2


class TestTensorRegistration:
    def test_cpu(self, engine: IOEngine) -> None:
        buffer = bytearray(64)
        desc = engine.register_torch_tensor(_FakeTensor(buffer))
        assert (desc.data, desc.size, desc.device_id, desc.loc) == (buffer_span(buffer).ptr, 64, -1, CPU)

    def test_not_contiguous(self, engine: IOEngine) -> None:
        with pytest.raises(RuntimeError, match="input tensor must be contiguous"):
            engine.register_torch_tensor(_FakeTensor(bytearray(64), contiguous=False))

    def test_other_device(self, engine: IOEngine) -> None:
        with pytest.raises(KeyError):
            engine.register_torch_tensor(_FakeTensor(bytearray(64), device="mps"))

    def test_real_tensor(self, engine: IOEngine) -> None:
        need_torch()
        import torch

        tensor = torch.arange(32, dtype=torch.int32)
        desc = engine.register_torch_tensor(tensor)
        assert (desc.data, desc.size, desc.loc) == (tensor.data_ptr(), 128, CPU)
        with pytest.raises(RuntimeError, match="contiguous"):
            engine.register_torch_tensor(torch.zeros(4, 4).t())


class TestSingleTransfers:
    def test_write(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(1000, 1)), Region(right, pattern(1000, 2))
        expected = bytes(there)[:50] + bytes(here)[100:400] + bytes(there)[350:]
        status = left.write(here.desc, 100, there.desc, 50, 300, left.allocate_transfer_uid())
        succeed(status)
        assert bytes(there) == expected
        assert bytes(here) == pattern(1000, 1)
        assert status.Message() in ("success", "")

    def test_read(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(1000, 1)), Region(right, pattern(1000, 2))
        expected = bytes(here)[:100] + bytes(there)[50:350] + bytes(here)[400:]
        succeed(left.read(here.desc, 100, there.desc, 50, 300, left.allocate_transfer_uid()))
        assert bytes(here) == expected
        assert bytes(there) == pattern(1000, 2)

    @pytest.mark.parametrize("size", [1, 8, 4095, 4096, 65537, 1 << 20, (9 << 20) + 3])
    def test_sizes(self, two_engines: tuple[IOEngine, IOEngine], size: int) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(size)), Region(right, size)
        succeed(left.write(here.desc, 0, there.desc, 0, size, 0))
        assert there.buffer == here.buffer
        here.buffer[:] = bytes(size)
        succeed(left.read(here.desc, 0, there.desc, 0, size, 1))
        assert there.buffer == here.buffer

    def test_zero_bytes(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, there = Region(left, 16), Region(right, 16)
        succeed(left.write(here.desc, 16, there.desc, 16, 0, 0))
        succeed(left.read(here.desc, 0, there.desc, 0, 0, 1))

    def test_to_itself(self, make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
        engine = make_engine("self", backend)
        source, target = Region(engine, pattern(5000)), Region(engine, 5000)
        succeed(engine.write(source.desc, 0, target.desc, 0, 2500, 0))
        succeed(engine.read(target.desc, 2500, source.desc, 2500, 2500, 1))
        assert target.buffer == source.buffer

    def test_positional_only(self, engine: IOEngine) -> None:
        region = Region(engine, 16)
        with pytest.raises(TypeError):
            engine.read(region.desc, 0, region.desc, 0, 8, uid=0)

    def test_uids_count_from_zero(self, engine: IOEngine) -> None:
        assert [engine.allocate_transfer_uid() for _ in range(3)] == [0, 1, 2]
        assert engine._engine.AllocateTransferUniqueId() == 3

    def test_unregistered_local_copy_is_found(self, two_engines: tuple[IOEngine, IOEngine]) -> None:
        left, right = two_engines
        here, there = Region(left, pattern(64)), Region(right, 64)
        local, remote = (MemoryDesc.unpack(region.desc.pack()) for region in (here, there))
        succeed(left.write(local, 0, remote, 0, 64, 0))
        assert there.buffer == here.buffer

    def test_no_backend(self, make_engine: Callable[..., IOEngine]) -> None:
        engine = make_engine("idle", None)
        region = Region(engine, 32)
        status = engine.write(region.desc, 0, region.desc, 16, 8, 0)
        assert finish(status) == StatusCode.ERR_BAD_STATE
        assert "backend" in status.Message()
