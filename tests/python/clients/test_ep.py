# SPDX-License-Identifier: MIT
"""vLLM's, SGLang's and rtp-llm's expert parallelism: their calls in four processes, against one process's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ranks import Processes
from support import need_torch

SIZE = 4
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """Processes without mori.shmem: the frameworks initialise it."""
    need_torch()
    processes = Processes(SIZE)
    yield processes
    processes.stop(patience=5)


@pytest.fixture
def framework(processes: Processes, tmp_path: Path) -> Iterator[Callable[..., list[Any]]]:
    """Runs a function of ep_calls in every process, with a torch process group among them."""
    import ep_calls

    processes.run(ep_calls.join, SIZE, str(tmp_path / "store"), timeout=60)
    yield lambda name, *args: processes.run(getattr(ep_calls, name), *args, timeout=60)
    processes.run(ep_calls.leave)


def test_vllm(framework: Callable[..., list[Any]]) -> None:
    errors = framework("vllm", False)
    assert all(0 < e < 0.1 for e in errors), errors  # of numbers up to 10, in bfloat16


def test_vllm_with_quantised_tokens(framework: Callable[..., list[Any]]) -> None:
    errors = framework("vllm", True)
    assert all(0 < e < 0.4 for e in errors), errors  # 4 bits of each token


@pytest.mark.parametrize("mode", ["normal", "sdma", "low latency"])
def test_sglang(framework: Callable[..., list[Any]], mode: str) -> None:
    errors = framework("sglang", mode, "none")
    assert all(0 < e < 0.1 for e in errors), errors


@pytest.mark.parametrize("quant_type", ["fp8_direct_cast", "fp8_blockwise"])
def test_sglang_with_a_quantised_way_back(framework: Callable[..., list[Any]], quant_type: str) -> None:
    errors = framework("sglang", "normal", quant_type)
    assert all(0.005 < e < 0.6 for e in errors), errors


def test_rtp_llm(framework: Callable[..., list[Any]]) -> None:
    errors = framework("rtp_llm")
    assert all(e < 1e-4 for e in errors), errors


def test_groups_that_are_halves_of_the_world(framework: Callable[..., list[Any]]) -> None:
    errors = framework("halves")
    assert all(e < 1e-4 for e in errors), errors
