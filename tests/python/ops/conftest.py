# SPDX-License-Identifier: MIT
"""Fixtures of the tests of mori.ops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gpus
from arrays import Kind
from ranks import Ranks
from support import need_torch


@pytest.fixture(params=["numpy", "torch"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of array that mori.ops takes."""
    if request.param == "torch":
        need_torch()
    return request.param


def _on_gpus(**environment: str) -> Iterator[Ranks]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**gpus.child_env(), "MORI_SHMEM_DEVICE": "gpu"}.items():
            patch.setenv(name, value)
        ranks = Ranks(environment={"MORI_SHMEM_HEAP_SIZE": "64M", **environment})
        yield ranks
        ranks.close()


@pytest.fixture(scope="module")
def gpu_ranks(gpu: None) -> Iterator[Ranks]:
    """Ranks whose symmetric heap is on a GPU."""
    yield from _on_gpus()


@pytest.fixture(scope="module")
def gpu_nic_ranks(gpu: None) -> Iterator[Ranks]:
    """The same, whose kernels post to the queues of an emulated NIC themselves where loads and stores do not reach."""
    yield from _on_gpus(MORI_SHMEM_NIC="emu0")
