# SPDX-License-Identifier: MIT
"""mori.cpp: the flat names and the native spelling."""

from __future__ import annotations

import pytest

from mori import cpp, io
from mori.io import IOEngine, StatusCode
from support import Region, eventually, pattern

NAMES = [
    "set_log_level",
    "BackendType",
    "MemoryLocationType",
    "StatusCode",
    "PollCqMode",
    "BackendConfig",
    "RdmaBackendConfig",
    "XgmiBackendConfig",
    "FabricBackendConfig",
    "fabric_alloc",
    "fabric_free",
    "IOEngineConfig",
    "TransferStatus",
    "EngineDesc",
    "MemoryDesc",
    "IOEngineSession",
    "IOEngine",
]

BARE = {
    "XGMI": io.BackendType.XGMI,
    "RDMA": io.BackendType.RDMA,
    "TCP": io.BackendType.TCP,
    "FABRIC": io.BackendType.FABRIC,
    "CPU": io.MemoryLocationType.CPU,
    "GPU": io.MemoryLocationType.GPU,
    "Unknown": io.MemoryLocationType.Unknown,
    **{code.name: code for code in StatusCode},
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert hasattr(cpp, name)
    if name not in ("IOEngine", "IOEngineSession", "BackendConfig", "TransferStatus"):
        assert getattr(cpp, name) is getattr(io, name)


@pytest.mark.parametrize("name", BARE)
def test_bare_enum_values(name: str) -> None:
    assert getattr(cpp, name) is BARE[name]


def test_poll_cq_modes_are_not_bare() -> None:
    assert not hasattr(cpp, "POLLING")


class TestNativeSpelling:
    @pytest.fixture
    def regions(self, engine: IOEngine) -> tuple[Region, Region]:
        return Region(engine, pattern(256)), Region(engine, 256)

    def test_every_method_is_there(self) -> None:
        engine_methods = [
            "GetEngineDesc",
            "CreateBackend",
            "RemoveBackend",
            "RegisterRemoteEngine",
            "DeregisterRemoteEngine",
            "RegisterMemory",
            "DeregisterMemory",
            "AllocateTransferUniqueId",
            "Read",
            "Write",
            "BatchRead",
            "BatchWrite",
            "CreateSession",
            "PopInboundTransferStatus",
            "WaitAll",
            "LoadScatterGatherModule",
            "LoadFabricCopyModule",
        ]
        session_methods = ["AllocateTransferUniqueId", "Read", "BatchRead", "Write", "BatchWrite", "Alive"]
        assert all(callable(getattr(cpp.IOEngine, name)) for name in engine_methods)
        assert all(callable(getattr(cpp.IOEngineSession, name)) for name in session_methods)

    def test_engine_transfers(self, engine: IOEngine, regions: tuple[Region, Region]) -> None:
        source, target = regions
        native, statuses = engine._engine, [cpp.TransferStatus() for _ in range(4)]
        native.Write(source.desc, 0, target.desc, 0, 64, statuses[0], 0)
        native.Read(target.desc, 64, source.desc, 64, 64, statuses[1], 1)
        native.BatchWrite([source.desc], [[128]], [target.desc], [[128]], [[64]], [statuses[2]], [2])
        native.BatchRead([target.desc], [[192]], [source.desc], [[192]], [[64]], [statuses[3]], [3])
        assert native.WaitAll(statuses, 10_000) == StatusCode.SUCCESS
        assert target.buffer == source.buffer

    def test_session_transfers(self, engine: IOEngine, regions: tuple[Region, Region]) -> None:
        source, target = regions
        there = engine._engine.CreateSession(source.desc, target.desc)
        back = engine._engine.CreateSession(target.desc, source.desc)
        statuses = [cpp.TransferStatus() for _ in range(4)]
        there.Write(0, 0, 64, statuses[0], 0)
        there.BatchWrite([64], [64], [64], statuses[1], 1)
        back.Read(128, 128, 64, statuses[2], 2)
        back.BatchRead([192], [192], [64], statuses[3], 3)
        assert engine.wait_all(statuses, 10_000) == StatusCode.SUCCESS
        assert target.buffer == source.buffer
        assert there.Alive()

    def test_failure_reaches_the_caller_s_status(self, engine: IOEngine, regions: tuple[Region, Region]) -> None:
        source, target = regions
        status = cpp.TransferStatus()
        engine._engine.Write(source.desc, 0, target.desc, 0, 257, status, 0)
        assert status.WaitFor(10_000) == StatusCode.ERR_INVALID_ARGS
        assert status.Message()

    def test_large_transfers_end_in_order(self, engine: IOEngine) -> None:
        size = 16 << 20
        source, target = Region(engine, size), Region(engine, size)
        statuses = [cpp.TransferStatus() for _ in range(6)]
        for uid, status in enumerate(statuses):
            engine._engine.Write(source.desc, 0, target.desc, 0, size if uid % 2 == 0 else 8, status, uid)

        def look() -> bool:
            done = [status.Succeeded() for status in reversed(statuses)][::-1]
            assert done == sorted(done, reverse=True)
            return all(done)

        eventually(look)

    def test_status_is_checked(self, engine: IOEngine, regions: tuple[Region, Region]) -> None:
        source, target = regions
        with pytest.raises(TypeError):
            engine._engine.Write(source.desc, 0, target.desc, 0, 8, None, 0)

    @pytest.mark.parametrize("name", ["LoadScatterGatherModule", "LoadFabricCopyModule"])
    def test_gpu_modules(self, engine: IOEngine, name: str) -> None:
        with pytest.raises(io.UnsupportedError, match="kernel"):
            getattr(engine._engine, name)("kernel.hsaco")


class TestFabricMemory:
    def test_alloc_and_free(self) -> None:
        assert io.fabric_alloc(0, 0) == 0
        assert io.fabric_alloc(4096, 0) == 0
        assert io.fabric_free(0) is None

    def test_torch_helpers(self) -> None:
        for call in (io.fabric_torch_allocator, io.use_fabric_torch_allocator, io.make_fabric_mem_pool):
            with pytest.raises(FileNotFoundError):
                call()
        with pytest.raises(FileNotFoundError), io.fabric_mem_pool():
            pass

    def test_jit_modules(self) -> None:
        from mori.io import fabric_copy_jit, scatter_gather_jit

        for module in (fabric_copy_jit, scatter_gather_jit):
            assert not module.available()
            with pytest.raises(io.UnsupportedError, match="kernel"):
                module.load()
        assert io.engine.ensure_scatter_gather_kernel() is True
        assert io.engine.ensure_fabric_copy_kernel() is False
