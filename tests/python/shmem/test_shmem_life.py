# SPDX-License-Identifier: MIT
"""How PEs begin and end: cycles, exits, kills, Ctrl-C, forks, and worlds beside each other."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from programs import Programs, settle

import mori.shmem as shmem
from ranks import Processes, Rank, Ranks

TWO_HOSTS = [{"MORI_NODE_ID": "a"}, {"MORI_NODE_ID": "b"}]


def cycles(rank: Rank, unique_ids: list[bytes], size: int) -> tuple[list[int], list[int]]:
    """Init and finalize again and again; return how many descriptors and mappings there were after each."""
    descriptors, mappings = [], []
    for turn, unique_id in enumerate(unique_ids):
        assert shmem.shmem_init_attr(1, rank.me, size, unique_id) == 0
        x = shmem.mori_shmem_create_tensor((1000,), np.int64)
        shmem.shmem_put(x, np.full(1000, turn), 1000, (rank.me + 1) % size)
        shmem.shmem_barrier_all()
        assert (x == turn).all()
        del x
        assert shmem.shmem_finalize() == 0
        assert shmem.shmem_finalize() == 0
        with pytest.raises(RuntimeError, match="not initialised"):
            shmem.shmem_mype()
        with pytest.raises(RuntimeError, match="not initialised"):
            shmem.shmem_barrier_all()
        descriptors.append(len(os.listdir("/proc/self/fd")))
        with open("/proc/self/maps") as file:
            mappings.append(sum("mori" in line for line in file if ".so" not in line))
    return descriptors, mappings


@pytest.mark.parametrize("far", [False, True], ids=["mapped", "over tcp"])
def test_many_cycles_leave_nothing(far: bool) -> None:
    processes = Processes(2, {"MORI_SHMEM_HEAP_SIZE": "64M", **({"MORI_DISABLE_P2P": "1"} if far else {})})
    try:
        unique_ids = [shmem.shmem_get_unique_id() for _ in range(20)]
        for descriptors, mappings in processes.run(cycles, unique_ids, 2):
            # connections to a finalized PE close a little later
            assert min(descriptors[-5:]) <= min(descriptors[:5]), descriptors
            assert mappings[-1] == 0, mappings
    finally:
        processes.stop()


def handles_of_before(rank: Rank, unique_ids: list[bytes]) -> None:
    assert shmem.shmem_init_attr(1, rank.me, 2, unique_ids[0]) == 0
    team = shmem.SHMEM_TEAM_WORLD.split_strided(0, 1, 2)
    assert team is not None
    shmem.shmem_finalize()
    assert shmem.shmem_init_attr(1, rank.me, 2, unique_ids[1]) == 0
    with pytest.raises(RuntimeError, match="team handle"):
        team.n_pes()
    assert shmem.SHMEM_TEAM_WORLD.n_pes() == 2
    shmem.shmem_finalize()


def test_a_team_ends_with_its_world() -> None:
    processes = Processes(2)
    try:
        processes.run(handles_of_before, [shmem.shmem_get_unique_id() for _ in range(2)])
    finally:
        processes.stop()


class TestExit:
    @pytest.mark.parametrize("how", ["pass", "sys.exit(3)", "raise ValueError('own fault')", "os._exit(4)"])
    def test_without_finalize_is_told_to_the_others(self, how: str) -> None:
        program = f"""
join()
x = mori_shmem_create_tensor((1000,), np.float32)
shmem_barrier_all()
if me == 1:
    {how}
else:
    failed(shmem_barrier_all)
"""
        with Programs(3, program) as programs:
            status, _, complaints = programs.rest(1)
            assert status == {"pass": 0, "sys.exit(3)": 3, "os._exit(4)": 4}.get(how, 1)
            assert complaints == "" or "own fault" in complaints
            for rank in (0, 2):
                status, out, _ = programs.rest(rank)
                assert status == 0
                assert out.startswith("PE 1 failed"), out

    def test_with_threads_that_wait(self) -> None:
        program = """
import threading
join()
x = mori_shmem_create_tensor((1,), np.int64)
threading.Thread(target=lambda: shmem_wait_until(x, SHMEM_CMP_EQ, 5), daemon=True).start()
time.sleep(0.3)
say("bye")
"""
        with Programs(1, program) as programs:
            status, out, complaints = programs.rest(0)
            assert (status, out, complaints) == (0, "bye", "")


CALLS = {
    "barrier": "shmem_barrier_all()",
    "sync": "shmem_sync_all()",
    "wait": "shmem_wait_until(words, SHMEM_CMP_EQ, 5)",
    "signal": "shmem_signal_wait_until(words, SHMEM_CMP_NE, 0)",
    "any": "shmem_wait_until_any(words, 4, None, SHMEM_CMP_GT, 0)",
    "malloc": "shmem_malloc(64)",
    "free": "mori_shmem_free_tensor(words)",
    "reduce": "SHMEM_TEAM_WORLD.sum_reduce(words, words, 4)",
    "split": "SHMEM_TEAM_WORLD.split_strided(0, 1, 2)",
    "get": "[shmem_getmem(bytearray(8), words, 8, 1 - me) for _ in range(10**9)]",
}


class TestKilled:
    @pytest.mark.parametrize("call", [call for call in CALLS if call != "get"])
    def test_names_the_pe(self, call: str) -> None:
        program = f"""
join()
words = mori_shmem_create_tensor((4,), np.int64)
shmem_barrier_all()
say("ready")
if me == 1:
    time.sleep(100)
failed(lambda: {CALLS[call]})
failed(lambda: {CALLS[call]})
say(shmem_finalize())
"""
        with Programs(2, program) as programs:
            programs.expect("ready")
            settle()
            programs.all[1].kill()
            begin = time.monotonic()
            status, out, complaints = programs.rest(0)
            assert time.monotonic() - begin < 10, "a dead PE is noticed at once, not by the time limit"
            lines = out.splitlines()
            assert status == 0, complaints
            assert lines[0].startswith("PE 1 failed"), out
            assert lines[1].startswith("PE 1 failed"), out
            assert lines[2] == "-1", "the others did not finalize"

    @pytest.mark.parametrize("call", ["barrier", "get", "atomic", "quiet"])
    def test_on_another_host(self, call: str) -> None:
        calls = {
            "barrier": "shmem_barrier_all()",
            "get": "[shmem_getmem(bytearray(8), words, 8, 1) for _ in range(10**9)]",
            "atomic": "[shmem_atomic_inc(words, 1) for _ in range(10**9)]",
            "quiet": "[(shmem_put_nbi(words, words, 4, 1), shmem_quiet()) for _ in range(10**9)]",
        }
        program = f"""
join()
words = mori_shmem_create_tensor((4,), np.int64)
shmem_barrier_all()
say("ready")
if me == 1:
    time.sleep(100)
failed(lambda: {calls[call]})
"""
        with Programs(2, program, TWO_HOSTS) as programs:
            programs.expect("ready")
            settle()
            programs.all[1].kill()
            _, out, complaints = programs.rest(0)
            assert "PE 1 failed" in out or "PE 1" in out, out + complaints
            assert "fine" not in out

    def test_all_others_hear_of_it(self) -> None:
        with Programs(5, "join()\nsay('ready')\nif me == 3: time.sleep(100)\nfailed(shmem_barrier_all)") as programs:
            programs.expect("ready")
            programs.all[3].kill()
            for rank in (0, 1, 2, 4):
                assert programs.rest(rank)[1].startswith("PE 3 failed")

    def test_before_all_have_come(self) -> None:
        program = "if me == 2: os.kill(os.getpid(), 9)\nsay(shmem_init_attr(1, me, npes, bytes.fromhex(sys.argv[3])))"
        with Programs(3, program, MORI_BOOTSTRAP_TIMEOUT="2", MORI_SHMEM_LOG_LEVEL="error") as programs:
            for rank in (0, 1):
                _, out, err = programs.rest(rank)
                assert out == "-1"
                assert "2" in err


class TestCtrlC:
    @pytest.mark.parametrize(
        ("call", "hosts"),
        [(call, "one host") for call in CALLS if call != "free"]
        + [(call, "two hosts") for call in ("barrier", "wait", "malloc", "reduce", "get")],
    )
    def test_gets_through(self, call: str, hosts: str) -> None:
        program = f"""
signal.signal(signal.SIGINT, signal.default_int_handler)
join()
words = mori_shmem_create_tensor((4,), np.int64)
shmem_barrier_all()
say("ready")
if me == 0:
    time.sleep(100)
try:
    {CALLS[call]}
except KeyboardInterrupt:
    say("interrupted")
shmem_quiet()
say(shmem_mype())
"""
        with Programs(2, program, TWO_HOSTS if hosts == "two hosts" else ()) as programs:
            programs.expect("ready")
            settle()
            programs.all[1].send_signal(signal.SIGINT)
            begin = time.monotonic()
            status, out, complaints = programs.rest(1)
            assert time.monotonic() - begin < 5
            assert (status, out) == (0, "interrupted\n1"), complaints

    def test_in_init(self) -> None:
        program = """
signal.signal(signal.SIGINT, signal.default_int_handler)
say("ready")
try:
    join()
except KeyboardInterrupt:
    say("interrupted", shmem_finalize())
"""
        with Programs(1, program.replace("join()", "shmem_init_attr(1, 0, 2, shmem_get_unique_id())")) as programs:
            programs.expect("ready")
            settle()
            programs.all[0].send_signal(signal.SIGINT)
            assert programs.rest(0)[:2] == (0, "interrupted 0")

    def test_another_handler_runs_meanwhile(self) -> None:
        program = """
join()
words = mori_shmem_create_tensor((4,), np.int64)
def handler(*_):
    shmem_atomic_inc(words, 0)
    shmem_barrier_all()
    words[1] = 7
signal.signal(signal.SIGUSR1, handler)
say("ready")
shmem_wait_until(words[1:], SHMEM_CMP_EQ, 7)
say("done", words[0])
"""
        with Programs(1, program) as programs:
            programs.expect("ready")
            settle()
            programs.all[0].send_signal(signal.SIGUSR1)
            assert programs.rest(0)[:2] == (0, "done 1")


def test_a_forked_child_is_refused() -> None:
    program = """
join()
words = mori_shmem_create_tensor((4,), np.int64)
if (child := os.fork()) == 0:
    for call in (shmem_mype, shmem_barrier_all, shmem_quiet, shmem_finalize, lambda: shmem_malloc(8),
                 lambda: shmem_put(words, words, 4, 0), lambda: shmem_init_attr(1, me, npes, bytes(128)),
                 shmem_get_unique_id, lambda: shmem_wait_until(words, 1, 0), SHMEM_TEAM_WORLD.n_pes):
        try:
            call()
            say("fine", call)
        except RuntimeError as err:
            if type(err).__name__ != "ForkError":
                say(repr(err))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
shmem_barrier_all()
say(shmem_finalize())
"""
    with Programs(2, program) as programs:
        for rank in range(2):
            assert programs.rest(rank) == (0, "0", "")


def test_a_child_forked_before_init_is_a_pe() -> None:
    program = """
if (child := os.fork()) == 0:
    me += 1
join()
words = mori_shmem_create_tensor((4,), np.int64)
shmem_atomic_inc(words, 0)
shmem_barrier_all()
if me == 0:
    say(words[0])
shmem_finalize()
if child:
    os.waitpid(child, 0)
"""
    with Programs(1, "npes = 2\n" + program) as programs:
        assert programs.rest(0) == (0, "2", "")


def count_here(rank: Rank) -> int:
    word = shmem.mori_shmem_create_tensor((1,), np.int64)
    for _ in range(100):
        shmem.shmem_atomic_add(word, rank.size, 0)
        shmem.shmem_barrier_all()
    return int(shmem.shmem_atomic_fetch(word, 0))


def test_two_worlds_do_not_meet(ranks: Ranks) -> None:
    other = Ranks(3)
    try:
        ranks.world(2)
        import threading

        found: list[list[int]] = []
        beside = threading.Thread(target=lambda: found.append(other.run(count_here)))
        beside.start()
        assert ranks.run(count_here) == [400, 400]
        beside.join(30)
        assert found == [[900] * 3]
    finally:
        other.stop()


def test_threads_of_a_pe_work_at_once() -> None:
    program = """
import threading
join()
words, other = mori_shmem_create_tensor((8,), np.int64), (me + 1) % npes
def work(i):
    for turn in range(1, 501):
        shmem_atomic_inc(words[i:], other)
        if turn % 10 == 0:
            shmem_wait_until(words[i:], SHMEM_CMP_GE, turn)
            shmem_putmem(int(words.ctypes.data) + 48, b"12345678", 8, other)
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
shmem_barrier_all()
say(words[:4].tolist())
shmem_finalize()
"""
    with Programs(2, program) as programs:
        for rank in range(2):
            assert programs.rest(rank) == (0, "[500, 500, 500, 500]", "")


def test_finalize_ends_the_waits_of_other_threads() -> None:
    program = """
import threading
join()
words = mori_shmem_create_tensor((1,), np.int64)
waiter = threading.Thread(target=lambda: failed(lambda: shmem_wait_until(words, SHMEM_CMP_EQ, 1)))
waiter.start()
time.sleep(0.3)
say(shmem_finalize())
waiter.join()
try:
    shmem_mype()
except RuntimeError:
    join(shmem_get_unique_id())
    say(shmem_npes(), shmem_finalize())
"""
    with Programs(1, program) as programs:
        status, out, complaints = programs.rest(0)
        assert (status, complaints) == (0, "")
        lines = sorted(out.splitlines())
        assert lines[:2] == ["0", "1 0"]
        assert "finalized" in lines[2]


class TestTimeLimit:
    @pytest.mark.parametrize("call", ["barrier", "malloc", "reduce", "wait"])
    def test_names_what_did_not_come(self, call: str) -> None:
        program = f"""
join()
words = mori_shmem_create_tensor((4,), np.int64)
shmem_barrier_all()
if me == 0:
    failed(lambda: {CALLS[call]})
else:
    sys.stdin.readline()
"""
        with Programs(2, program, MORI_SHMEM_TIMEOUT="1") as programs:
            _, out, _ = programs.rest(0)
            assert out.startswith("MoriTimeoutError"), out
            assert "words" in out or "PE 1" in out or "int64" in out or "rank 1" in out, out

    def test_of_pes_in_different_calls(self) -> None:
        program = """
join()
words = mori_shmem_create_tensor((4,), np.int64)
shmem_barrier_all()
failed(shmem_barrier_all if me else lambda: shmem_malloc(64))
"""
        with Programs(2, program, MORI_SHMEM_TIMEOUT="1") as programs:
            for rank in range(2):
                _, out, _ = programs.rest(rank)
                assert out.startswith(("MoriTimeoutError", "PE", "MismatchError")), out


def test_finalize_waits_for_pes_that_come_late() -> None:
    program = "join()\nif me: time.sleep(0.7)\nsay(shmem_finalize())\n"
    with Programs(2, program) as programs:
        assert [programs.rest(rank) for rank in range(2)] == [(0, "0", "")] * 2
