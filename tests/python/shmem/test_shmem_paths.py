# SPDX-License-Identifier: MIT
"""The same calls on each path and in each mode: PEs of several hosts, nothing mapped, heaps that grow and do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from programs import Programs

import mori.shmem as shmem
import nics
from ranks import Each, Rank, Ranks

HEAP = {"MORI_SHMEM_HEAP_SIZE": "64MiB"}
SETTINGS: dict[str, dict[str, str]] = {
    "one host, no mapping": {"MORI_DISABLE_P2P": "1"},
    "one host, vmm": {
        "MORI_SHMEM_MODE": "vmm_heap",
        "MORI_SHMEM_HEAP_SIZE": "256M",
        "MORI_SHMEM_VMM_CHUNK_SIZE": "64M",
    },
    "one host, isolation": {"MORI_SHMEM_MODE": "ISOLATION"},
    "a mode that is none, normal memory": {"MORI_SHMEM_MODE": "Static", "MORI_SHMEM_HEAP_TYPE": "normal"},
}


def everything(rank: Rank, mapped: bool, bytes_each: int) -> str:
    """Use each kind of call once, with its result checked; return how the next PE is reached."""
    n, me, after, before = rank.size, rank.me, (rank.me + 1) % rank.size, (rank.me - 1) % rank.size
    count = bytes_each // 8
    big, words = shmem.mori_shmem_create_tensor((count,), np.int64), shmem.mori_shmem_create_tensor((16,), np.int64)
    words[...] = 0
    assert (shmem.shmem_ptr(big, after) != 0) is mapped
    assert (shmem.shmem_ptr_p2p(int(big.ctypes.data), me, after) != 0) is mapped
    shmem.shmem_barrier_all()
    moving(big, count, me, after, before)
    atomics(words, me, after, n)
    together(big, me, n)
    shmem.shmem_barrier_all()
    path = shmem.shmem_describe()["peers"][after]["path"]
    shmem.mori_shmem_free_tensor(words)
    shmem.mori_shmem_free_tensor(big)
    return path


def moving(big: Any, count: int, me: int, after: int, before: int) -> None:
    shmem.shmem_put(big, np.arange(count) + me, count, after)
    shmem.shmem_barrier_all()
    assert (big == np.arange(count) + before).all()
    got = np.zeros(count, np.int64)
    shmem.shmem_get(got, big, count, after)
    assert (got == np.arange(count) + me).all()
    shmem.shmem_barrier_all()
    for i in range(100):
        shmem.shmem_put_nbi(big[i:], np.array([7 * me + i]), 1, after)  # whose arrays nobody else holds
    got[...] = 0
    shmem.shmem_get_nbi(got[:10], big[200:], 10, after)
    shmem.shmem_quiet()
    assert (got[:10] == np.arange(200, 210) + me).all()
    shmem.shmem_barrier_all()
    assert (big[:100] == 7 * before + np.arange(100)).all()
    shmem.shmem_iput(big[300:], np.arange(20), 2, 1, 20, after)
    shmem.shmem_quiet()
    shmem.shmem_iget(got, big[300:], 1, 2, 20, after)
    assert (got[:20] == np.arange(20)).all()
    shmem.shmem_p(big[500:], -5, after)
    shmem.shmem_fence()
    shmem.shmem_quiet()
    assert shmem.shmem_g(big[500:], after) == -5
    shmem.shmem_barrier_all()


def atomics(words: Any, me: int, after: int, n: int) -> None:
    for _ in range(10):
        shmem.shmem_atomic_inc(words, 0)
        shmem.shmem_atomic_fetch_add(words, 2, 0)
    shmem.shmem_wait_until(words[1:], shmem.SHMEM_CMP_EQ, 0)
    shmem.shmem_barrier_all()
    assert shmem.shmem_atomic_fetch(words, 0) == 30 * n
    assert shmem.shmem_atomic_compare_swap(words[2:], 0, me + 1, after) == 0
    shmem.shmem_barrier_all()
    assert words[2] == (me - 1) % n + 1
    for turn in range(1, 6):
        shmem.shmem_put_signal(words[8:], np.full(8, turn), 8, words[3:], turn, shmem.SHMEM_SIGNAL_SET, after)
        assert shmem.shmem_signal_wait_until(words[3:], shmem.SHMEM_CMP_GE, turn) == turn
        assert (words[8:] == turn).all()
        shmem.shmem_barrier_all()


def together(big: Any, me: int, n: int) -> None:
    team, source, dest = shmem.SHMEM_TEAM_WORLD, big[1000:1100], big[2000 : 2000 + 100 * n]
    source[...] = me + 1
    team.fcollect(dest, source, 100)
    assert (dest.reshape(n, 100) == np.arange(1, n + 1)[:, None]).all()
    team.sum_reduce(source, source, 100)
    assert (source == n * (n + 1) // 2).all()
    team.broadcast(dest, source, 100, n - 1)
    dest[: 4 * n] = np.arange(4 * n) + 100 * me
    shmem.shmem_barrier_all()
    out = big[5000 : 5000 + 4 * n]
    team.alltoall(out, dest, 4)
    assert (out.reshape(n, 4) == np.arange(4) + 4 * me + 100 * np.arange(n)[:, None]).all()


@pytest.fixture
def made() -> Iterator[list[Ranks]]:
    worlds: list[Ranks] = []
    yield worlds
    for world in worlds:
        world.stop(patience=5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings(made: list[Ranks], setting: str) -> None:
    world = Ranks(2, {**HEAP, **SETTINGS[setting]})
    made.append(world)
    paths = world.run(everything, setting != "one host, no mapping", 1 << 20)
    assert all((path == "mapped") is (setting != "one host, no mapping") for path in paths), paths


@pytest.mark.parametrize(("size", "hosts"), [(4, 2), (3, 3), (3, 2), (8, 2)])
def test_hosts(ranks: Ranks, size: int, hosts: int) -> None:
    """Rank r is on host r % hosts."""
    ranks.world(size, hosts)
    near = [pe % hosts == (pe + 1) % size % hosts for pe in range(size)]
    paths = ranks.run(everything, Each(near), 1 << 20)
    assert [path == "mapped" for path in paths] == near, paths
    assert all(path in ("mapped", "tcp", "verbs") for path in paths)


@pytest.mark.parametrize(("size", "hosts"), [(2, 2), (4, 2), (3, 3)])
def test_hosts_with_nics(nic_ranks: Ranks, size: int, hosts: int) -> None:
    """The same, and what is not on a rank's host is reached by RDMA."""
    nic_ranks.world(size, hosts)
    near = [pe % hosts == (pe + 1) % size % hosts for pe in range(size)]
    paths = nic_ranks.run(everything, Each(near), 1 << 20)
    assert paths == ["mapped" if is_near else "verbs" for is_near in near]


def local_memory(rank: Rank) -> bool:
    """Register an array, and move it."""
    after, before = (rank.me + 1) % rank.size, (rank.me - 1) % rank.size
    mine, at = np.full(1 << 18, rank.me + 1), shmem.mori_shmem_create_tensor((1 << 18,), np.int64)
    shmem.shmem_barrier_all()
    assert shmem.shmem_buffer_register(mine.ctypes.data, mine.nbytes) == 0
    shmem.shmem_put(at, mine, mine.size, after)
    shmem.shmem_barrier_all()
    right = bool((at == before + 1).all())
    shmem.shmem_get(mine, at, mine.size, after)
    assert shmem.shmem_buffer_deregister(mine.ctypes.data, mine.nbytes) == 0
    shmem.mori_shmem_free_tensor(at)
    return right and bool((mine == rank.me + 1).all())


def test_registered_memory_with_nics(nic_ranks: Ranks) -> None:
    assert nic_ranks.world(2, hosts=2).run(local_memory) == [True, True]


@pytest.mark.parametrize(
    ("blind", "filters", "path", "why"),
    [
        (0, ("verbs,tcp", "verbs,tcp"), "tcp", "(not on PE 0)"),
        (1, ("verbs,tcp", "verbs,tcp"), "tcp", "(not on PE 1)"),
        (-1, ("verbs,tcp", "^verbs"), "tcp", "(not on PE 1)"),
        (-1, ("", "verbs,tcp"), "verbs", "it is on another node"),
    ],
)
def test_all_take_what_all_have(blind: int, filters: tuple[str, str], path: str, why: str) -> None:
    """A PE without a device, or that is set to use none, does not break the others."""
    nics.need_emulated()
    worlds = [{**nics.child_env(), "FABRIC_PROVIDER": f, "MORI_NODE_ID": f"host {pe}"} for pe, f in enumerate(filters)]
    if blind >= 0:
        worlds[blind]["FAKE_VERBS_COUNT"] = "0"
    program = """
join()
other = shmem_describe()["peers"][1 - me]
shmem_barrier_all()
say(other["path"], other["why"])
shmem_finalize()
"""
    with Programs(2, program, worlds) as programs:
        for rank in range(2):
            status, said, complaint = programs.rest(rank)
            assert status == 0, complaint
            assert said.split(" ", 1)[0] == path
            assert why in said


def shared_team(rank: Rank) -> tuple[int, int]:
    del rank
    return shmem.SHMEM_TEAM_SHARED.my_pe(), shmem.SHMEM_TEAM_SHARED.n_pes()


def copy_of_a_far_tensor(rank: Rank) -> str:
    tensor = shmem.mori_shmem_create_tensor((4,), np.float32)
    try:
        shmem.symm_mori_shmem_tensor(tensor, (rank.me + 1) % rank.size)
    except shmem.UnsupportedError as err:
        return str(err)
    return ""


def test_what_is_far_is_not_mapped(ranks: Ranks) -> None:
    ranks.world(3, hosts=2)
    assert ranks.run(shared_team) == [(0, 2), (0, 1), (1, 2)]
    said = ranks.run(copy_of_a_far_tensor)
    assert "PE 1" in said[0]
    assert "PE 2" in said[1]
    assert said[2] == ""


def heap_of(rank: Rank) -> dict[str, Any]:
    del rank
    return shmem.shmem_describe()["heap"]


def grow(rank: Rank, size: int) -> list[int]:
    del rank
    addresses = [shmem.shmem_malloc(size) for _ in range(4)]
    for at in addresses:
        if at:
            np.asarray(shmem.MoriShmemBuffer(at, size, "uint8"))[:: 1 << 16] = 1
            shmem.shmem_free(at)
    return [bool(at) for at in addresses]


@pytest.mark.parametrize(("size", "found"), [("1GiB", 1 << 30), ("65536KB", 64 << 20)])
def test_heap_size(made: list[Ranks], size: str, found: int) -> None:
    world = Ranks(1, {"MORI_SHMEM_HEAP_SIZE": size})
    made.append(world)
    assert world.run(heap_of)[0]["size"] == found


@pytest.mark.parametrize("mode", ["static_heap", "vmm_heap", "isolation"])
def test_a_full_heap_gives_nothing_and_goes_on(made: list[Ranks], mode: str) -> None:
    world = Ranks(2, {"MORI_SHMEM_MODE": mode, "MORI_SHMEM_HEAP_SIZE": "128M", "MORI_SHMEM_VMM_CHUNK_SIZE": "64M"})
    made.append(world)
    for _ in range(2):
        assert world.run(grow, 40 << 20) == [[True, True, True, False]] * 2
    assert world.run(heap_of)[0]["mode"] == mode


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"MORI_SHMEM_HEAP_SIZE": "30T"}, "memory"),
        ({"MORI_SHMEM_HEAP_SIZE": "lots"}, '"lots" is not a size'),
        ({"MORI_SHMEM_DEVICE": "gpu", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}, "no GPU"),
        ({"MORI_SHMEM_DEVICE": "abacus"}, "abacus"),
    ],
)
def test_settings_that_cannot_be(environment: dict[str, str], said: str) -> None:
    from support import run_program

    done = run_program(
        "import mori.shmem as s; print(s.shmem_init_attr(1, 0, 1, s.shmem_get_unique_id()))", **environment
    )
    assert done.stdout == "-1\n"
    assert said in done.stderr
