# SPDX-License-Identifier: MIT
"""Configuration classes: constructors, defaults, checks; and what create_backend refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from mori.io import (
    BackendConfig,
    BackendType,
    FabricBackendConfig,
    IOEngine,
    IOEngineConfig,
    PollCqMode,
    RdmaBackendConfig,
    XgmiBackendConfig,
)
from support import Region, pattern, succeed

RDMA_DEFAULTS = {
    "qp_per_transfer": 1,
    "post_batch_size": -1,
    "num_worker_threads": -1,
    "poll_cq_mode": PollCqMode.POLLING,
    "enable_notification": True,
    "notif_per_qp": 1024,
    "enable_transfer_chunking": False,
    "chunk_bytes": 65536,
    "max_chunks_per_transfer": 64,
    "num_nics_per_transfer": 1,
}


class TestEngineConfig:
    def test_defaults(self) -> None:
        config = IOEngineConfig()
        assert (config.host, config.port) == ("", 0)

    def test_positional_and_keyword(self) -> None:
        for config in (IOEngineConfig("10.0.0.1", 77), IOEngineConfig(host="10.0.0.1", port=77)):
            assert (config.host, config.port) == ("10.0.0.1", 77)

    def test_attributes_are_writable(self) -> None:
        config = IOEngineConfig()
        config.host, config.port = "h", 65535
        assert (config.host, config.port) == ("h", 65535)

    @pytest.mark.parametrize("port", [-1, 65536, "80", 1.5, None])
    def test_port_out_of_range(self, port: object) -> None:
        with pytest.raises(TypeError):
            IOEngineConfig("127.0.0.1", port)

    @pytest.mark.parametrize("host", [None, 1, b"127.0.0.1"])
    def test_host_is_text(self, host: object) -> None:
        with pytest.raises(TypeError):
            IOEngineConfig(host)

    def test_engine_copies_it(self) -> None:
        config = IOEngineConfig("127.0.0.1", 0)
        engine = IOEngine("copier", config)
        config.host = "10.1.2.3"
        engine.create_backend(BackendType.RDMA)
        assert engine.get_engine_desc().host == "127.0.0.1"
        assert config.port == 0, "the engine must not write back"
        engine.close()


class TestRdmaConfig:
    def test_defaults(self) -> None:
        config = RdmaBackendConfig()
        assert {name: getattr(config, name) for name in RDMA_DEFAULTS} == RDMA_DEFAULTS
        assert (config.max_send_wr, config.max_cqe_num, config.max_msg_sge) == (0, 0, 0)

    def test_positional_order(self) -> None:
        values = (2, 3, 4, PollCqMode.EVENT, False, 5, True, 8192, 7, 8)
        config = RdmaBackendConfig(*values)
        assert tuple(getattr(config, name) for name in RDMA_DEFAULTS) == values

    def test_as_clients_call_it(self) -> None:
        four = RdmaBackendConfig(1, -1, 1, PollCqMode.POLLING, enable_notification=False)
        five = RdmaBackendConfig(4, -1, 4, PollCqMode.POLLING, False)
        five.max_send_wr, five.max_cqe_num, five.max_msg_sge = 1024, 2048, 2
        assert not four.enable_notification
        assert five.poll_cq_mode.name == "POLLING"

    @pytest.mark.parametrize("name", RDMA_DEFAULTS)
    def test_keywords_and_writes(self, name: str) -> None:
        value = {bool: True, PollCqMode: PollCqMode.EVENT}.get(type(RDMA_DEFAULTS[name]), 9000)
        config = RdmaBackendConfig(**{name: value})
        assert getattr(config, name) == value
        setattr(config, name, RDMA_DEFAULTS[name])
        assert getattr(config, name) == RDMA_DEFAULTS[name]

    @pytest.mark.parametrize("value", [0, 1, None, "true"])
    def test_enable_notification_wants_a_bool(self, value: object) -> None:
        with pytest.raises(TypeError, match="enable_notification"):
            RdmaBackendConfig(enable_notification=value)

    @pytest.mark.parametrize("value", [0, 1, "POLLING", None])
    def test_poll_cq_mode_wants_the_enum(self, value: object) -> None:
        with pytest.raises(TypeError, match="poll_cq_mode"):
            RdmaBackendConfig(poll_cq_mode=value)

    @pytest.mark.parametrize("value", [1.0, "1", None, 2**31])
    def test_counts_want_an_int(self, value: object) -> None:
        with pytest.raises(TypeError, match="qp_per_transfer"):
            RdmaBackendConfig(qp_per_transfer=value)

    def test_copies(self) -> None:
        config = copy.deepcopy(RdmaBackendConfig(3))
        assert config.qp_per_transfer == 3

    @pytest.mark.parametrize(
        "wrong",
        [
            {"enable_notification": True, "notif_per_qp": 0},
            {"max_chunks_per_transfer": 0},
            {"num_nics_per_transfer": 0},
            {"enable_transfer_chunking": True, "chunk_bytes": 4095},
        ],
        ids=lambda wrong: ",".join(wrong),
    )
    def test_create_backend_refuses(self, make_engine: Callable[..., IOEngine], wrong: dict[str, object]) -> None:
        engine = make_engine("picky", None)
        with pytest.raises(RuntimeError, match=list(wrong)[-1]):
            engine.create_backend(BackendType.RDMA, RdmaBackendConfig(**wrong))
        engine.create_backend(BackendType.RDMA)
        assert engine.get_engine_desc().port > 0

    @pytest.mark.parametrize(
        "fine",
        [
            {"enable_notification": False, "notif_per_qp": 0},
            {"enable_transfer_chunking": False, "chunk_bytes": 1},
            {"enable_transfer_chunking": True, "chunk_bytes": 4096},
            {"qp_per_transfer": 4, "num_worker_threads": 4},
            {"poll_cq_mode": PollCqMode.EVENT},
        ],
        ids=lambda fine: ",".join(fine),
    )
    def test_create_backend_takes(self, make_engine: Callable[..., IOEngine], fine: dict[str, object]) -> None:
        make_engine("content", BackendType.RDMA, RdmaBackendConfig(**fine))


@pytest.mark.parametrize("kind", [XgmiBackendConfig, FabricBackendConfig])
class TestStreamConfigs:
    def test_defaults_and_order(self, kind: type) -> None:
        assert (kind().num_streams, kind().num_events) == (64, 64)
        assert (kind(1, 2).num_streams, kind(1, 2).num_events) == (1, 2)
        assert kind(num_events=3).num_events == 3

    def test_writable(self, kind: type) -> None:
        config = kind()
        config.num_streams, config.num_events = 0, -5
        assert (config.num_streams, config.num_events) == (0, -5)

    def test_family(self, kind: type) -> None:
        assert isinstance(kind(), BackendConfig)


def test_base_is_not_constructible() -> None:
    assert issubclass(RdmaBackendConfig, BackendConfig)
    with pytest.raises(TypeError):
        BackendConfig()


def test_config_of_another_backend(make_engine: Callable[..., IOEngine]) -> None:
    with pytest.raises(TypeError, match="RdmaBackendConfig"):
        make_engine("mixed", None).create_backend(BackendType.RDMA, XgmiBackendConfig())


class TestEnvironment:
    """Variables override the fields, before these are checked; what cannot be read is ignored."""

    @pytest.mark.parametrize(
        ("variables", "config", "refusal"),
        [
            ({"MORI_IO_ENABLE_CHUNKING": "1"}, {"chunk_bytes": 1}, "chunk_bytes"),
            ({"MORI_IO_CHUNK_BYTES": "64"}, {"enable_transfer_chunking": True}, "chunk_bytes"),
            ({"MORI_IO_CHUNK_BYTES": "8192"}, {"enable_transfer_chunking": True, "chunk_bytes": 1}, None),
            ({"MORI_IO_MAX_CHUNKS": "8"}, {"max_chunks_per_transfer": 0}, None),
            ({"MORI_IO_NUM_NICS_PER_TRANSFER": "2"}, {"num_nics_per_transfer": 0}, None),
            ({"MORI_IO_ENABLE_NOTIFICATION": "off"}, {"notif_per_qp": 0}, None),
            (
                {"MORI_IO_ENABLE_NOTIFICATION": "TRUE"},
                {"enable_notification": False, "notif_per_qp": 0},
                "notif_per_qp",
            ),
            ({"MORI_IO_MAX_CHUNKS": "0"}, {}, None),
            ({"MORI_IO_QP_PER_TRANSFER": "many"}, {}, None),
            ({"MORI_IO_POST_BATCH_SIZE": "-1", "MORI_IO_NUM_WORKER_THREADS": "4"}, {}, None),
            ({"MORI_IO_POLL_CQ_MODE": "event"}, {}, None),
            ({"MORI_IO_POLL_CQ_MODE": "sometimes"}, {}, None),
            ({"MORI_IO_ENABLE_CHUNKING": "perhaps"}, {"chunk_bytes": 1}, None),
            ({"MORI_IO_CP_TIMEOUT_MS": "soon"}, {}, None),
        ],
    )
    def test_overrides(
        self,
        make_engine: Callable[..., IOEngine],
        monkeypatch: pytest.MonkeyPatch,
        variables: dict[str, str],
        config: dict[str, object],
        refusal: str | None,
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings, engine = RdmaBackendConfig(**config), make_engine("env", None)
        if refusal is None:
            engine.create_backend(BackendType.RDMA, settings)
            region = Region(engine, pattern(64))
            succeed(engine.write(region.desc, 0, region.desc, 32, 32, 0))
        else:
            with pytest.raises(RuntimeError, match=refusal):
                engine.create_backend(BackendType.RDMA, settings)
        assert {name: getattr(settings, name) for name in config} == config, "the caller's object is not written to"
