# SPDX-License-Identifier: MIT
"""TransferStatus as an object of its own, and wait_all over such objects."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable

import pytest

from mori.cpp import TransferStatus
from mori.io import IOEngine, StatusCode

FINAL = [code for code in StatusCode if code not in (StatusCode.INIT, StatusCode.IN_PROGRESS)]
ERRORS = [code for code in FINAL if code != StatusCode.SUCCESS]


def in_state(code: StatusCode) -> TransferStatus:
    status = TransferStatus()
    status.SetCode(code)
    return status


def later(seconds: float, action: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        time.sleep(seconds)
        action()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


class TestState:
    def test_a_new_one(self) -> None:
        status = TransferStatus()
        assert status.Code() == StatusCode.INIT
        assert status.Message() == ""
        assert status.Init()
        assert [status.InProgress(), status.Succeeded(), status.Failed()] == [False] * 3

    def test_constructor_takes_nothing(self) -> None:
        with pytest.raises(TypeError):
            TransferStatus(StatusCode.SUCCESS)

    @pytest.mark.parametrize("code", StatusCode, ids=lambda code: code.name)
    def test_predicates(self, code: StatusCode) -> None:
        status = in_state(code)
        assert status.Code() == code
        assert status.Init() is (code == StatusCode.INIT)
        assert status.InProgress() is (code == StatusCode.IN_PROGRESS)
        assert status.Succeeded() is (code == StatusCode.SUCCESS)
        assert status.Failed() is (code.value > 10)

    def test_code_is_the_enum_member(self) -> None:
        assert TransferStatus().Code() is StatusCode.INIT

    def test_update(self) -> None:
        status = TransferStatus()
        status.Update(StatusCode.SUCCESS, "fine")
        assert (status.Code(), status.Message()) == (StatusCode.SUCCESS, "fine")
        status.Update(StatusCode.IN_PROGRESS, "")
        assert (status.Code(), status.Message()) == (StatusCode.IN_PROGRESS, "")

    @pytest.mark.parametrize("error", ERRORS, ids=lambda code: code.name)
    @pytest.mark.parametrize("after", StatusCode, ids=lambda code: code.name)
    def test_first_error_is_sticky(self, error: StatusCode, after: StatusCode) -> None:
        status = TransferStatus()
        status.Update(error, "first")
        status.Update(after, "second")
        assert (status.Code(), status.Message()) == (error, "first")

    def test_set_code_overwrites_an_error(self) -> None:
        status = in_state(StatusCode.ERR_RDMA_OP)
        status.SetMessage("still here")
        status.SetCode(StatusCode.SUCCESS)
        assert (status.Code(), status.Message()) == (StatusCode.SUCCESS, "still here")

    def test_set_message(self) -> None:
        status = TransferStatus()
        for text in ("x", "", "grüße 你好", "x" * 10_000):
            status.SetMessage(text)
            assert status.Message() == text

    @pytest.mark.parametrize(
        "call",
        [
            lambda status: status.SetCode(None),
            lambda status: status.SetMessage(b"bytes"),
            lambda status: status.Update(StatusCode.SUCCESS),
            lambda status: status.Update(StatusCode.SUCCESS, 5),
            lambda status: status.WaitFor("1"),
            lambda status: status.WaitFor(1.5),
            lambda status: status.Wait(1),
        ],
    )
    def test_wrong_types(self, call: Callable[[TransferStatus], None]) -> None:
        status = TransferStatus()
        with pytest.raises(TypeError):
            call(status)
        assert status.Init()

    @pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_not_copyable(self, how: Callable[[object], object]) -> None:
        with pytest.raises(TypeError):
            how(TransferStatus())

    def test_text_form(self) -> None:
        status = TransferStatus()
        status.Update(StatusCode.ERR_NOT_FOUND, "no peer")
        assert "ERR_NOT_FOUND" in repr(status)
        assert "no peer" in repr(status)

    def test_one_class(self) -> None:
        from mori import cpp, io

        assert cpp.TransferStatus is io.TransferStatus
        assert isinstance(TransferStatus(), TransferStatus)


class TestWait:
    @pytest.mark.parametrize("code", [StatusCode.INIT, *FINAL], ids=lambda code: code.name)
    def test_returns_at_once_unless_in_progress(self, code: StatusCode) -> None:
        status = in_state(code)
        assert status.Wait() is None
        assert status.WaitFor() == code
        assert status.WaitFor(-1) == code
        assert status.WaitFor(timeout_ms=10_000) == code

    def test_zero_polls(self) -> None:
        assert in_state(StatusCode.IN_PROGRESS).WaitFor(0) == StatusCode.IN_PROGRESS

    def test_time_runs_out(self) -> None:
        status = in_state(StatusCode.IN_PROGRESS)
        begin = time.monotonic()
        assert status.WaitFor(timeout_ms=120) == StatusCode.IN_PROGRESS
        assert time.monotonic() - begin >= 0.119

    @pytest.mark.parametrize("wait", [lambda s: s.Wait(), lambda s: s.WaitFor(-1), lambda s: s.WaitFor(20_000)])
    def test_woken_by_another_thread(self, wait: Callable[[TransferStatus], object]) -> None:
        status = in_state(StatusCode.IN_PROGRESS)
        thread = later(0.05, lambda: status.Update(StatusCode.SUCCESS, "done"))
        wait(status)
        assert status.Succeeded()
        thread.join()

    def test_woken_by_set_code(self) -> None:
        status = in_state(StatusCode.IN_PROGRESS)
        thread = later(0.05, lambda: status.SetCode(StatusCode.ERR_GPU_OP))
        assert status.WaitFor(20_000) == StatusCode.ERR_GPU_OP
        thread.join()

    def test_spurious_updates_do_not_end_a_wait(self) -> None:
        status = in_state(StatusCode.IN_PROGRESS)

        def pester() -> None:
            for _ in range(20):
                status.Update(StatusCode.IN_PROGRESS, "more")
                status.SetCode(StatusCode.IN_PROGRESS)
                time.sleep(0.002)
            status.Update(StatusCode.SUCCESS, "")

        thread = later(0, pester)
        assert status.WaitFor(20_000) == StatusCode.SUCCESS
        thread.join()

    def test_many_waiters(self) -> None:
        status = in_state(StatusCode.IN_PROGRESS)
        seen: list[StatusCode] = []
        waiters = [threading.Thread(target=lambda: seen.append(status.WaitFor(20_000))) for _ in range(8)]
        for waiter in waiters:
            waiter.start()
        thread = later(0.05, lambda: status.Update(StatusCode.SUCCESS, ""))
        for waiter in [*waiters, thread]:
            waiter.join()
        assert seen == [StatusCode.SUCCESS] * 8

    def test_the_gil_is_free_while_waiting(self) -> None:
        status = in_state(StatusCode.IN_PROGRESS)
        count = 0

        def work() -> None:
            nonlocal count
            for _ in range(1000):
                count += 1
            status.SetCode(StatusCode.SUCCESS)

        thread = later(0.02, work)
        status.Wait()
        assert count == 1000
        thread.join()


@pytest.fixture(scope="module")
def wait_all():
    from support import new_engine

    with new_engine("waiter", None) as engine:
        yield engine.wait_all


class TestWaitAll:
    def test_empty(self, wait_all: Callable[..., StatusCode]) -> None:
        for timeout in (-1, 0, 50):
            assert wait_all([], timeout) == StatusCode.SUCCESS

    def test_result_is_the_enum_member(self, wait_all: Callable[..., StatusCode]) -> None:
        assert wait_all([]) is StatusCode.SUCCESS

    def test_none_entries_are_skipped(self, wait_all: Callable[..., StatusCode]) -> None:
        assert wait_all([None, in_state(StatusCode.SUCCESS), None]) == StatusCode.SUCCESS
        assert wait_all([None], timeout_ms=0) == StatusCode.SUCCESS

    @pytest.mark.parametrize("timeout", [-1, 0, 50])
    def test_init_counts_as_not_success(self, wait_all: Callable[..., StatusCode], timeout: int) -> None:
        assert wait_all([in_state(StatusCode.SUCCESS), TransferStatus()], timeout) == StatusCode.INIT

    @pytest.mark.parametrize("timeout", [-1, 0, 50])
    def test_first_failure_in_list_order(self, wait_all: Callable[..., StatusCode], timeout: int) -> None:
        codes = (StatusCode.SUCCESS, StatusCode.ERR_NOT_FOUND, StatusCode.ERR_RDMA_OP)
        assert wait_all([in_state(code) for code in codes], timeout) == StatusCode.ERR_NOT_FOUND

    def test_poll_finds_a_failure_behind_unfinished_ones(self, wait_all: Callable[..., StatusCode]) -> None:
        statuses = [in_state(StatusCode.IN_PROGRESS), in_state(StatusCode.ERR_BAD_STATE)]
        assert wait_all(statuses, 0) == StatusCode.ERR_BAD_STATE

    def test_poll_of_unfinished_ones(self, wait_all: Callable[..., StatusCode]) -> None:
        statuses = [in_state(StatusCode.SUCCESS), in_state(StatusCode.IN_PROGRESS)]
        assert wait_all(statuses, timeout_ms=0) == StatusCode.IN_PROGRESS

    def test_deadline_passes(self, wait_all: Callable[..., StatusCode]) -> None:
        statuses = [in_state(StatusCode.IN_PROGRESS) for _ in range(3)]
        begin = time.monotonic()
        assert wait_all(statuses, 100) == StatusCode.IN_PROGRESS
        assert 0.099 <= time.monotonic() - begin < 5, "one deadline, not one for each status"

    def test_deadline_passes_after_a_failure(self, wait_all: Callable[..., StatusCode]) -> None:
        statuses = [in_state(StatusCode.ERR_GPU_OP), in_state(StatusCode.IN_PROGRESS)]
        assert wait_all(statuses, 100) == StatusCode.ERR_GPU_OP

    @pytest.mark.parametrize("timeout", [-1, 20_000])
    def test_waits_for_the_last(self, wait_all: Callable[..., StatusCode], timeout: int) -> None:
        statuses = [in_state(StatusCode.IN_PROGRESS) for _ in range(4)]
        threads = [
            later(0.01 * n, lambda status=status: status.Update(StatusCode.SUCCESS, ""))
            for n, status in enumerate(statuses)
        ]
        assert wait_all(statuses, timeout) == StatusCode.SUCCESS
        for thread in threads:
            thread.join()

    def test_repeatable_and_any_sequence(self, wait_all: Callable[..., StatusCode]) -> None:
        statuses = (in_state(StatusCode.SUCCESS),) * 3
        for _ in range(3):
            assert wait_all(statuses, timeout_ms=1000) == StatusCode.SUCCESS

    @pytest.mark.parametrize("wrong", [[1], ["x"], [StatusCode.SUCCESS], None, 5])
    def test_wrong_types(self, wait_all: Callable[..., StatusCode], wrong: object) -> None:
        with pytest.raises(TypeError):
            wait_all(wrong, 0)


def test_native_wait_all(engine: IOEngine) -> None:
    assert engine._engine.WaitAll([in_state(StatusCode.SUCCESS)], 0) == StatusCode.SUCCESS
