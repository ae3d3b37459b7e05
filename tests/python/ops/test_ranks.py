# SPDX-License-Identifier: MIT
"""The processes that tests of several ranks run in: results, failures, deaths, hangs and new worlds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from ranks import Each, NoAnswer, Processes, Rank, RankFailed, Ranks, on_ranks


def who(rank: Rank) -> int:
    return rank.me


def place(_: Rank) -> tuple[int, int]:
    from mori.shmem import shmem_mype, shmem_npes

    return shmem_mype(), shmem_npes()


def reachable(rank: Rank) -> list[bool]:
    """Which ranks' memory is mapped here."""
    from mori.shmem import shmem_malloc, shmem_ptr_p2p

    address = shmem_malloc(64)
    return [shmem_ptr_p2p(address, rank.me, other) != 0 for other in range(rank.size)]


def skip(_: Rank) -> None:
    pytest.skip("not here")


def unpicklable(_: Rank) -> object:
    return lambda: None


def add(rank: Rank, own: int, same: int) -> int:
    return rank.me + own + same


def count(rank: Rank) -> int:
    rank.kept["calls"] = rank.kept.get("calls", 0) + 1
    return rank.kept["calls"]


def refuse(rank: Rank, who: int) -> None:
    if rank.me == who:
        secret = "the cause"  # noqa: F841  locals are part of the message
        raise ValueError("refused")


def die(rank: Rank, who: int) -> None:
    if rank.me == who:
        os.kill(os.getpid(), signal.SIGKILL)


def hang(rank: Rank, who: int) -> None:
    if rank.me == who:
        time.sleep(1000)


@pytest.fixture
def three() -> Iterator[Processes]:
    processes = Processes(3)
    yield processes
    processes.stop()


class TestProcesses:
    def test_results_come_in_the_order_of_ranks_and_each_has_its_argument(self, three: Processes) -> None:
        assert three.run(add, Each([10, 20, 30]), 100) == [110, 121, 132]

    def test_what_is_kept_stays_until_the_processes_end(self, three: Processes) -> None:
        assert [three.run(count), three.run(count)] == [[1, 1, 1], [2, 2, 2]]
        three.stop()
        assert three.run(count) == [1, 1, 1]

    def test_a_failure_has_the_traceback_of_its_rank_with_locals_and_harms_no_later_run(self, three: Processes) -> None:
        with pytest.raises(RankFailed, match=r"rank 1 of 3:\n(.|\n)*in refuse(.|\n)*the cause(.|\n)*refused"):
            three.run(refuse, 1)
        assert three.run(who) == [0, 1, 2]

    def test_outcomes_tell_how_it_ended_in_each_rank_and_the_ranks_go_on(self, three: Processes) -> None:
        three.run(count)
        good, bad, _ = three.outcomes(refuse, 1)
        assert good.error is None
        assert isinstance(bad.error, ValueError)
        assert three.run(count) == [2, 2, 2]

    def test_where_all_ranks_skip_the_test_does(self, three: Processes) -> None:
        with pytest.raises(pytest.skip.Exception, match="not here"):
            three.run(skip)

    def test_a_rank_that_dies_is_told_with_its_exit_code(self, three: Processes) -> None:
        with pytest.raises(RankFailed, match="rank 1 died with exit code -9"):
            three.run(die, 1)
        assert three.run(who) == [0, 1, 2]

    def test_a_rank_that_hangs_is_told_with_its_stack(self, three: Processes) -> None:
        three.run(who)
        outcomes = three.outcomes(hang, 0, timeout=3)
        assert outcomes[1].error is None
        assert isinstance(outcomes[0].error, NoAnswer)
        assert "in hang" in outcomes[0].text
        assert three.run(who) == [0, 1, 2]

    def test_killed_ranks_are_told(self, three: Processes) -> None:
        three.run(who)
        three.kill(0)
        assert "exit code -9" in str(three.outcomes(who)[0].error)
        assert three.run(who) == [0, 1, 2]

    def test_what_does_not_pickle_is_a_failure_that_says_so(self, three: Processes) -> None:
        outcomes = three.outcomes(unpicklable)
        assert all("pickle" in str(o.error) for o in outcomes)


class TestRanks:
    def test_a_world_may_grow_and_shrink(self, ranks: Ranks) -> None:
        for size in (2, 4, 1, 3):
            assert ranks.world(size).run(place) == [(rank, size) for rank in range(size)]

    def test_what_is_kept_stays_until_the_world_changes(self, ranks: Ranks) -> None:
        ranks.world(2, anew=True)
        assert [ranks.run(count), ranks.run(count)] == [[1, 1], [2, 2]]
        assert ranks.world(2, anew=True).run(count) == [1, 1]

    def test_ranks_may_be_on_several_hosts(self, ranks: Ranks) -> None:
        assert ranks.world(4, hosts=2).run(reachable) == [[True, False] * 2, [False, True] * 2] * 2
        assert ranks.world(4).run(reachable) == [[True] * 4] * 4

    def test_without_a_world_nothing_runs(self) -> None:
        with pytest.raises(AssertionError, match="no world"):
            Ranks().run(who)


@pytest.mark.parametrize("word", ["a", "b"])
@on_ranks(2)
def test_a_test_may_run_in_ranks(rank: Rank, word: str) -> None:
    assert rank.size == 2
    assert word in "ab"
