# SPDX-License-Identifier: MIT
"""Fixtures. Everything a test makes through them is closed, stopped or reaped when it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpus
import nics
from mori.io import BackendType, IOEngine
from ranks import Ranks
from results import Recorder
from support import BACKENDS, Peer, introduce, new_engine

# A background job of a shell ignores SIGINT, and so would every process that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Where there is a GPU, symmetric memory is on it unless somebody says otherwise: tests say when they want that.
os.environ.setdefault("MORI_SHMEM_DEVICE", "host")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", metavar="FILE", help="write the outcome of each test to FILE, a JSON object a line")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--results")
    if path and not hasattr(config, "workerinput"):  # xdist's main process hears of every test
        config.pluginmanager.register(Recorder(Path(path)))


def pytest_sessionstart() -> None:
    gpus.start()
    nics.start()


@pytest.fixture(scope="session")
def gpu() -> None:
    """There is a GPU, real or emulated: see gpus.py."""
    gpus.need()


@pytest.fixture
def gpu_env(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that the test starts see the GPU. Tests that use ``gpu`` have this, too."""
    for name, value in gpus.child_env().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def _gpu_for_processes(request: pytest.FixtureRequest) -> None:
    if gpus.fixture_wants(request):
        request.getfixturevalue("gpu_env")


@pytest.fixture(scope="session")
def nic() -> None:
    """There are RDMA devices, real or emulated, for the test and the processes that it starts: see nics.py."""
    nics.need()


@pytest.fixture(autouse=True)
def _nics_for_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "nic" in request.fixturenames:
        for name, value in nics.child_env().items():
            monkeypatch.setenv(name, value)


@pytest.fixture(params=["host", "gpu"])
def memory(request: pytest.FixtureRequest) -> Iterator[gpus.Memory]:
    """Memory of the host and of a GPU, in turn. What it gives is freed at the end of the test."""
    if request.param == "gpu":
        request.getfixturevalue("gpu")
    memory = gpus.Memory(request.param)
    yield memory
    memory.close()


@pytest.fixture
def make_engine() -> Iterator[Callable[..., IOEngine]]:
    """A function like ``support.new_engine``."""
    engines: list[IOEngine] = []

    def make(*args: Any, **kwargs: Any) -> IOEngine:
        engines.append(new_engine(*args, **kwargs))
        return engines[-1]

    yield make
    for engine in reversed(engines):
        engine.close()


@pytest.fixture
def make_peer() -> Iterator[Callable[..., Peer]]:
    """A function like the constructor of ``support.Peer``."""
    peers: list[Peer] = []

    def make(*args: Any, **kwargs: Any) -> Peer:
        peers.append(Peer(*args, **kwargs))
        return peers[-1]

    yield make
    for peer in reversed(peers):
        peer.stop()


@pytest.fixture
def engine(make_engine: Callable[..., IOEngine]) -> IOEngine:
    """One engine with an RDMA backend."""
    return make_engine("solo")


@pytest.fixture(params=[*BACKENDS, "VERBS"], ids=lambda backend: getattr(backend, "name", backend))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BackendType:
    """Each backend that works on every machine, and the way over RDMA devices that RDMA takes between hosts."""
    if request.param != "VERBS":
        return request.param
    request.getfixturevalue("nic")
    for name, value in nics.child_env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FABRIC_PROVIDER", "verbs,tcp")
    return BackendType.RDMA


@pytest.fixture
def two_engines(make_engine: Callable[..., IOEngine], backend: BackendType) -> tuple[IOEngine, IOEngine]:
    """Two engines of this process that know each other, with each backend in turn."""
    left, right = make_engine("left", backend), make_engine("right", backend)
    introduce(left, right)
    return left, right


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Processes with mori.shmem among them; a test chooses how many by ``ranks.world(n)``."""
    ranks = Ranks()
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def nic_ranks() -> Iterator[Ranks]:
    """Like ``ranks``, with RDMA devices, real or emulated, as the only path between hosts."""
    nics.need()
    small = {"MORI_SHMEM_HEAP_SIZE": "64M"}  # real devices pin all of it
    ranks = Ranks(environment={**nics.child_env(), **small, "FABRIC_PROVIDER": "verbs"})
    yield ranks
    ranks.close()
