# SPDX-License-Identifier: MIT
"""A spawned service: results, events, errors, and its end."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mori._bench.process import Remote, RemoteError


@pytest.fixture
def echo() -> Iterator[Remote]:
    with Remote("echo", "bench_services:Echo", "Hello") as made:
        yield made


def test_a_call_returns_the_methods_result(echo: Remote) -> None:
    assert echo.call("greet", "world") == "Hello, world"


def test_events_come_in_order_and_the_result_after_them(echo: Remote) -> None:
    echo.begin("count", 3)
    assert list(echo.events()) == [0, 1, 2]
    assert echo.call("count", 2) == 2


def test_an_error_names_the_process_and_leaves_the_service_usable(echo: Remote) -> None:
    with pytest.raises(RemoteError, match=rf"echo \(process {echo.pid}\): RuntimeError: no such block") as caught:
        echo.call("fail", "no such block")
    assert "in fail" in caught.value.trace
    assert echo.call("greet", "again") == "Hello, again"


def test_a_death_is_an_error_at_once(echo: Remote) -> None:
    with pytest.raises(RemoteError, match="echo died with exit code 3"):
        echo.call("die")


def test_the_process_is_gone_after_the_block() -> None:
    with Remote("echo", "bench_services:Echo", "Hello") as echo:
        pid = echo.pid
        echo.call("greet", "world")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
