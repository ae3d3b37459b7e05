# SPDX-License-Identifier: MIT
"""EngineDesc and MemoryDesc as values, and their wire bytes."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from mori.io import EngineDesc, IOEngine, MemoryDesc, MemoryLocationType
from mori.tensor_utils import buffer_span
from support import Region

ENGINE_VECTOR = bytes.fromhex("96a3656e67a46e6f6465a2686ea93132372e302e302e31cd10924d")
EMPTY_VECTOR = (
    bytes.fromhex("9fa000ffa0000000c440")
    + bytes(64)
    + bytes.fromhex("ff00c440")
    + bytes(64)
    + bytes.fromhex("ffa00000")
)

# Descriptors of a few bytes that claim 3 GiB: a binary, a text, an array.
HOSTILE = [b"\x91\xc6\xc0\0\0\0", b"\x91\xdb\xc0\0\0\0x", b"\xdd\xc0\0\0\0\xa0"]


class TestHostileBytes:
    @pytest.mark.parametrize("kind", [EngineDesc, MemoryDesc])
    @pytest.mark.parametrize("packed", HOSTILE)
    def test_claims_of_gigabytes_are_refused(self, kind: type, packed: bytes) -> None:
        # A fatal "out of memory" of the Go runtime would end a process with this limit.
        program = (
            "import pickle, resource, sys\n"
            "from mori.io import EngineDesc, MemoryDesc\n"
            f"kind, packed = {kind.__name__}, {packed!r}\n"
            "EngineDesc.unpack(b'\\x91\\xa1k')\n"
            "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
            "resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 30),) * 2)\n"
            "try:\n"
            "    kind.unpack(packed)\n"
            "except ValueError:\n"
            "    sys.exit(0)\n"
            "sys.exit(2)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("port", [b"\xcf\x7f" + b"\xff" * 7, b"\xce\0\1\0\0", b"\xff"])
    def test_a_port_beyond_65535_is_refused(self, port: bytes) -> None:
        with pytest.raises(ValueError):
            EngineDesc.unpack(b"\x95\xa1k\xa0\xa0\xa0" + port)


class TestEngineDesc:
    def test_fields(self, engine: IOEngine) -> None:
        desc = engine.get_engine_desc()
        assert (desc.key, desc.hostname, desc.host, desc.pid) == (
            "solo",
            socket.gethostname(),
            "127.0.0.1",
            os.getpid(),
        )
        assert desc.port > 0
        with open("/proc/sys/kernel/random/boot_id") as boot_id:
            assert desc.node_id == boot_id.read().strip()

    def test_node_id_from_the_environment(
        self, make_engine: Callable[..., IOEngine], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MORI_NODE_ID", "node-seven")
        assert make_engine("named").get_engine_desc().node_id == "node-seven"

    def test_port_is_zero_before_a_backend(self, make_engine: Callable[..., IOEngine]) -> None:
        assert make_engine("early", None).get_engine_desc().port == 0

    def test_round_trip(self, engine: IOEngine) -> None:
        desc = engine.get_engine_desc()
        copy = EngineDesc.unpack(desc.pack())
        assert copy == desc
        assert copy is not desc
        assert copy.pack() == desc.pack()

    def test_each_call_returns_a_copy(self, engine: IOEngine) -> None:
        assert engine.get_engine_desc() is not engine.get_engine_desc()
        assert engine.get_engine_desc() == engine.get_engine_desc()

    def test_golden_vector(self) -> None:
        desc = EngineDesc.unpack(ENGINE_VECTOR)
        told = (desc.key, desc.node_id, desc.hostname, desc.host, desc.port, desc.pid)
        assert told == ("eng", "node", "hn", "127.0.0.1", 4242, 77)
        assert desc.pack() == ENGINE_VECTOR

    def test_other_type_is_unequal(self, engine: IOEngine) -> None:
        desc = engine.get_engine_desc()
        assert (desc == desc.pack()) is False
        assert (desc == None) is False  # noqa: E711
        assert desc != "solo"

    def test_every_field_counts_in_equality(self, make_engine: Callable[..., IOEngine]) -> None:
        assert make_engine("a").get_engine_desc() != make_engine("b").get_engine_desc()

    def test_no_constructor_no_hash_no_writes(self, engine: IOEngine) -> None:
        desc = engine.get_engine_desc()
        with pytest.raises(TypeError):
            EngineDesc()
        with pytest.raises(TypeError):
            hash(desc)
        with pytest.raises(AttributeError):
            desc.port = 1

    def test_pickle(self, engine: IOEngine) -> None:
        desc = engine.get_engine_desc()
        assert pickle.loads(pickle.dumps(desc)) == desc

    @pytest.mark.parametrize("size", [0, 1, 5, len(ENGINE_VECTOR) - 1])
    def test_truncated(self, size: int) -> None:
        with pytest.raises(RuntimeError):
            EngineDesc.unpack(ENGINE_VECTOR[:size])

    def test_trailing_bytes_are_ignored(self) -> None:
        assert EngineDesc.unpack(ENGINE_VECTOR + b"surplus") == EngineDesc.unpack(ENGINE_VECTOR)

    def test_longer_array(self) -> None:
        longer = b"\x97" + ENGINE_VECTOR[1:] + b"\xa6future"
        assert EngineDesc.unpack(longer).key == "eng"

    def test_shorter_array_leaves_defaults(self) -> None:
        desc = EngineDesc.unpack(b"\x91\xa3eng")
        assert (desc.key, desc.host, desc.port) == ("eng", "", 0)

    def test_bin_where_str_is_expected(self) -> None:
        assert EngineDesc.unpack(b"\x91\xc4\x03eng").key == "eng"


class TestMemoryDesc:
    def test_empty(self) -> None:
        desc = MemoryDesc()
        assert (desc.engine_key, desc.id, desc.device_id, desc.device_bus_id) == ("", 0, -1, "")
        assert (desc.numa_node, desc.data, desc.size) == (-1, 0, 0)
        assert desc.loc is MemoryLocationType.Unknown
        assert desc.ipc_handle == bytes(64)
        assert desc == MemoryDesc()

    def test_golden_vector(self) -> None:
        assert MemoryDesc().pack() == EMPTY_VECTOR
        assert MemoryDesc.unpack(EMPTY_VECTOR) == MemoryDesc()
        assert MemoryDesc.unpack(EMPTY_VECTOR).pack() == EMPTY_VECTOR

    def test_fields(self, engine: IOEngine) -> None:
        buffer = bytearray(8192)
        ptr, size, device, loc = buffer_span(buffer)
        desc = engine.register_memory(ptr, size, device, loc)
        assert (desc.engine_key, desc.data, desc.size, desc.loc) == ("solo", ptr, 8192, MemoryLocationType.CPU)
        assert (desc.device_id, desc.device_bus_id, desc.ipc_handle) == (-1, "", bytes(64))
        assert desc.numa_node >= -1

    def test_ids_count_up_and_are_not_reused(self, engine: IOEngine) -> None:
        first, second = Region(engine, 16).desc, Region(engine, 16).desc
        engine.deregister_memory(second)
        third = Region(engine, 16).desc
        assert (first.id, second.id, third.id) == (0, 1, 2)

    def test_round_trip(self, engine: IOEngine) -> None:
        desc = Region(engine, 64).desc
        copy = MemoryDesc.unpack(desc.pack())
        assert copy == desc
        assert copy.pack() == desc.pack()
        assert pickle.loads(pickle.dumps(desc)) == desc

    def test_distinct_registrations_differ(self, engine: IOEngine) -> None:
        buffer = bytearray(64)
        first, second = (engine.register_memory(*buffer_span(buffer)) for _ in range(2))
        assert first != second
        assert (first.data, first.size) == (second.data, second.size)

    def test_no_hash_no_writes_no_foreign_equality(self) -> None:
        desc = MemoryDesc()
        with pytest.raises(TypeError):
            hash(desc)
        with pytest.raises(AttributeError):
            desc.size = 1
        assert (desc == desc.pack()) is False

    @pytest.mark.parametrize("size", [0, 1, 9, 40, len(EMPTY_VECTOR) - 1])
    def test_truncated(self, size: int) -> None:
        with pytest.raises(RuntimeError):
            MemoryDesc.unpack(EMPTY_VECTOR[:size])

    def test_unknown_location(self) -> None:
        assert EMPTY_VECTOR[7] == 0, "element 6 is the location"
        with pytest.raises(RuntimeError):
            MemoryDesc.unpack(EMPTY_VECTOR[:7] + b"\x07" + EMPTY_VECTOR[8:])


@pytest.mark.parametrize("kind", [EngineDesc, MemoryDesc])
class TestUnpackInput:
    @pytest.mark.parametrize("data", ["text", bytearray(ENGINE_VECTOR), memoryview(ENGINE_VECTOR), None, 5])
    def test_only_bytes(self, kind: type, data: object) -> None:
        with pytest.raises(TypeError):
            kind.unpack(data)

    @pytest.mark.parametrize(
        "data", [b"\x80", b"\xc0", b"\x05", b"\xa3abc", b"\xc1", b"\xff" * 100, b"\xdd\xff\xff\xff\xff"]
    )
    def test_wrong_shape(self, kind: type, data: bytes) -> None:
        with pytest.raises(RuntimeError):
            kind.unpack(data)
