# SPDX-License-Identifier: MIT
"""Ranks on GPUs that are killed or stopped in a call: others get an error that names the rank, and finalize ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_ops_gpu import on_gpu, rows_of

import gpus
from arrays import take
from mori._errors import MoriTimeoutError, PEFailedError
from ranks import NoAnswer, Rank, Ranks

pytestmark = pytest.mark.timeout(3600)
REPEATS = int(os.environ.get("MORI_TEST_REPEAT", "1"))
# MORI_TEST_BOUNDS=1, for machines that run nothing else, asserts what docs/reliability.md promises.
EXACT = os.environ.get("MORI_TEST_BOUNDS") == "1"
DEATH_BOUND = 0.05 if EXACT else 5.0
FINALIZE_BOUND = 2.0 if EXACT else 10.0
LONG_MS = "30000"  # far beyond all bounds
STOPPED_MS = "500"


@pytest.fixture
def victims(gpu: None) -> Iterator[Ranks]:
    """Two ranks with the symmetric heap on a GPU, which no other test uses."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**gpus.child_env(), "MORI_SHMEM_DEVICE": "gpu"}.items():
            patch.setenv(name, value)
        ranks = Ranks(environment={"MORI_SHMEM_HEAP_SIZE": "64M"})
        try:
            yield ranks
        finally:
            ranks.stop()


def _killed(rank: Rank, call: str, died: Path) -> float:
    """Return how many seconds after the death of rank 1 the call of rank 0 has raised."""
    from mori import shmem

    os.environ["MORI_EP_TIMEOUT_MS"] = LONG_MS
    op = on_gpu(rank)
    rows, ids = rows_of(rank)
    out, *_, total = op.dispatch(rows, None, None, ids)
    take(total)
    sums, _ = op.combine(out, None, ids)
    take(sums)
    if call == "combine":
        out, *_, total = op.dispatch(rows, None, None, ids)
        take(total)
    shmem.shmem_barrier_all()
    if rank.me == 1:
        time.sleep(0.3)  # the kernel of rank 0 is waiting by then
        died.write_text(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    if call == "combine":
        waits, _ = op.combine(out, None, ids)
    else:
        *_, waits = op.dispatch(rows, None, None, ids)
    take(waits)  # waits for the stream
    with pytest.raises(PEFailedError) as raised:
        op.check()
    took = time.monotonic() - float(died.read_text())
    assert raised.value.pe == 1
    return took


@pytest.mark.parametrize("call", ["dispatch", "combine"])
def test_a_rank_that_is_killed_ends_the_call_of_the_other(victims: Ranks, tmp_path: Path, call: str) -> None:
    for n in range(REPEATS):
        first, second = victims.world(2).outcomes(_killed, call, tmp_path / str(n), timeout=60)
        assert first.error is None, first.text
        assert isinstance(second.error, NoAnswer)
        print(f"{call}: PEFailedError {first.value * 1e3:.1f} ms after the death")
        assert first.value < DEATH_BOUND


def _stopped(rank: Rank, whose: Path) -> float:
    """Return how many seconds finalize took in rank 0, while rank 1 was stopped."""
    from mori import shmem

    os.environ["MORI_EP_TIMEOUT_MS"] = STOPPED_MS
    op = on_gpu(rank)
    rows, ids = rows_of(rank)
    shmem.shmem_barrier_all()
    if rank.me == 1:
        whose.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        return 0.0
    *_, total = op.dispatch(rows, None, None, ids)
    take(total)
    try:
        with pytest.raises(MoriTimeoutError):
            op.check()
        begun = time.monotonic()
        shmem.shmem_finalize()
        return time.monotonic() - begun
    finally:
        os.kill(int(whose.read_text()), signal.SIGKILL)


def test_finalize_does_not_wait_for_a_rank_that_is_stopped(victims: Ranks, tmp_path: Path) -> None:
    for n in range(REPEATS):
        first, second = victims.world(2).outcomes(_stopped, tmp_path / str(n), timeout=90)
        assert first.error is None, first.text
        assert isinstance(second.error, NoAnswer)
        print(f"finalize beside a stopped rank: {first.value:.2f} s")
        assert first.value < FINALIZE_BOUND
