# SPDX-License-Identifier: MIT
"""Spawned services and ranks: results, errors, and their ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mori._bench import process
from mori._bench.process import Local, Remote, RemoteError, Services, run_ranks


@pytest.fixture
def echo() -> Iterator[Remote]:
    with Remote("echo", "bench_services:Echo", "Hello") as made:
        yield made


def test_a_call_returns_the_methods_result(echo: Remote) -> None:
    assert echo.call("greet", "world") == "Hello, world"


def test_services_of_this_process_begin_last(echo: Remote) -> None:
    order: list[str] = []

    class Mine:
        def greet(self, name: str) -> str:
            order.append("local")
            return f"I, {name}"

    begin = echo.begin
    echo.begin = lambda *args: (order.append("remote"), begin(*args))  # type: ignore[assignment, func-returns-value]
    assert Services(Local(Mine()), echo).each("greet", "Ann") == ["I, Ann", "Hello, Ann"]
    assert order == ["remote", "local"]


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


@pytest.mark.parametrize(
    ("end", "status"), [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9)]
)
def test_when_a_rank_fails_the_others_are_ended(
    end: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mori"
    program.mkdir()
    text = f"import os, signal, time\nif os.environ['MORI_RANK'] == '1':\n    {end}\ntime.sleep(200)\n"
    (program / "__init__.py").touch()
    (program / "__main__.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(process, "_GRACE_S", 0.1)
    assert run_ranks([], 3) == status
