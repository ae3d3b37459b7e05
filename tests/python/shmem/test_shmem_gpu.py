# SPDX-License-Identifier: MIT
"""The symmetric heap on GPUs, real or emulated: each rank is a process with a GPU, several of which may be the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import Programs

import gpus
from ranks import Rank, Ranks

MODES = ["static_heap", "vmm_heap", "isolation"]


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest, gpu: None) -> Iterator[Ranks]:
    """Three ranks whose heap is on GPUs, in each mode."""
    environment = {"MORI_SHMEM_DEVICE": "gpu", "MORI_SHMEM_MODE": request.param, "MORI_SHMEM_HEAP_SIZE": "128M"}
    ranks = Ranks(3, {**environment, **gpus.child_env()})
    yield ranks
    ranks.stop()


def where(rank: Rank) -> tuple[str, int, int]:
    from mori import device, shmem

    at = shmem.shmem_malloc(1 << 20)
    known = device.lookup(at)
    there = [shmem.shmem_ptr_p2p(at, rank.me, pe) for pe in range(rank.size)]
    assert there[rank.me] == at
    assert all(address > 0 and device.lookup(address).ordinal >= 0 for address in there)
    shmem.shmem_free(at)
    return str(known.kind), known.ordinal, shmem.shmem_describe()["heap"]["used"]


def test_memory_is_on_a_gpu(world: Ranks) -> None:
    assert all(kind == "device" and ordinal >= 0 and used == 0 for kind, ordinal, used in world.run(where))


def talk(rank: Rank) -> None:
    import numpy as np

    from mori import device, shmem

    right, left = (rank.me + 1) % rank.size, (rank.me - 1) % rank.size
    at = shmem.shmem_calloc(1, 1 << 16)
    mine = np.arange(4096, dtype=np.int32) + 10_000 * rank.me
    shmem.shmem_put(at, mine, 4096, right, np.int32)  # host memory to a GPU
    shmem.shmem_barrier_all()
    seen = np.zeros(4096, np.int32)
    shmem.shmem_get(seen, at, 4096, rank.me, np.int32)
    assert (seen == np.arange(4096) + 10_000 * left).all()
    with device.DeviceMemory(4096) as own:  # one GPU's memory to another's
        own.write(bytes([rank.me + 1]) * 4096)
        shmem.shmem_putmem(at + 32768, own, 4096, right)
        shmem.shmem_barrier_all()
        own.fill(0)
        shmem.shmem_getmem(own, at + 32768, 4096, rank.me)
        assert own.read() == bytes([left + 1]) * 4096
    shmem.shmem_p(at, 2.5 * rank.me, right, "float64")
    shmem.shmem_barrier_all()
    assert shmem.shmem_g(at, rank.me, "float64") == 2.5 * left
    for pe in range(rank.size):
        shmem.shmem_atomic_add(at + 40960, 1 + rank.me, pe, "uint64")
    shmem.shmem_barrier_all()
    assert shmem.shmem_atomic_fetch(at + 40960, right, "uint64") == 6
    shmem.shmem_put_signal_nbi(at + 128, mine, 64, at + 1024, 7, shmem.SHMEM_SIGNAL_SET, right, np.int32)
    assert shmem.shmem_signal_wait_until(at + 1024, shmem.SHMEM_CMP_EQ, 7) == 7
    assert shmem.shmem_test(at + 1024, shmem.SHMEM_CMP_GE, 7, "uint64")
    assert shmem.shmem_g(at + 128, rank.me, "int32") == 10_000 * left
    shmem.shmem_quiet()
    shmem.shmem_barrier_all()
    shmem.shmem_iput(at + 4096, mine, 2, 1, 10, right, np.int32)
    shmem.shmem_barrier_all()
    apart = [shmem.shmem_g(at + 4096 + 8 * i, rank.me, "int32") for i in range(10)]
    assert apart == [10_000 * left + i for i in range(10)]
    world = shmem.SHMEM_TEAM_WORLD
    shmem.shmem_p(at + 8192, rank.me + 1, rank.me, "int64")
    shmem.shmem_sum_reduce(world, at + 8256, at + 8192, 1, "int64")
    assert shmem.shmem_g(at + 8256, rank.me, "int64") == 6
    shmem.shmem_fcollect(world, at + 16384, at + 8192, 1, "int64")
    assert [shmem.shmem_g(at + 16384 + 8 * i, rank.me, "int64") for i in range(3)] == [1, 2, 3]
    shmem.shmem_broadcast(world, at + 20480, at + 8192, 1, 2, "int64")
    assert shmem.shmem_g(at + 20480, rank.me, "int64") == 3
    shmem.shmem_barrier_all()
    shmem.shmem_free(at)


def test_calls_of_the_host(world: Ranks) -> None:
    world.run(talk)


def on_stream(rank: Rank) -> None:
    from mori import device, shmem
    from mori.shmem._world import heap_device

    gpu = heap_device()
    at = shmem.shmem_malloc(1 << 16)
    there = shmem.shmem_ptr_p2p(at, rank.me, (rank.me + 1) % rank.size)
    with (
        device.DeviceMemory(1 << 16, gpu) as own,
        device.DeviceMemory(1 << 16, gpu) as seen,
        device.Stream(gpu) as stream,
    ):
        for number in range(1, 9):
            own.fill(10 * number + rank.me)
            device.copy(there, own.ptr, 1 << 16, stream)
            shmem.shmem_barrier_on_stream(stream)  # all have put
            device.copy(seen.ptr, at, 1 << 16, stream)
            shmem.shmem_barrier_on_stream(stream.cuda_stream)  # all have read
            stream.wait(20)
            left = (rank.me - 1) % rank.size
            assert seen.read() == bytes([10 * number + left]) * (1 << 16)
    shmem.shmem_barrier_on_stream()
    shmem.shmem_barrier_on_stream(0)
    shmem.shmem_barrier_all()
    shmem.shmem_free(at)


def test_barrier_on_stream(world: Ranks) -> None:
    world.run(on_stream)


def buffers(rank: Rank) -> None:
    import numpy as np

    from mori import shmem
    from mori.shmem import MoriShmemBuffer, mori_shmem_create_tensor

    at = shmem.shmem_malloc(256)
    buffer = MoriShmemBuffer(at, 256, "float32")
    interface = buffer.__cuda_array_interface__
    assert interface["data"] == (at, False)
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((256,), "<u1", 3)
    assert not hasattr(buffer, "__array_interface__")
    shmem.shmem_putmem(buffer, np.full(256, rank.me + 1, np.uint8), 256, rank.me)
    seen = np.zeros(256, np.uint8)
    shmem.shmem_getmem(seen, buffer, 256, rank.me)
    assert (seen == rank.me + 1).all()
    with pytest.raises(shmem.UnsupportedError, match=r"on a GPU, where numpy cannot create an array of"):
        mori_shmem_create_tensor((4,), np.float32)
    shmem.shmem_free(at)


def test_buffers(world: Ranks) -> None:
    world.run(buffers)


def tensors(rank: Rank) -> None:
    import torch

    from mori import shmem
    from mori.shmem import mori_shmem_create_tensor, mori_shmem_free_tensor, symm_mori_shmem_tensor

    row: Any = mori_shmem_create_tensor((4, 8), torch.bfloat16)
    assert row.is_cuda
    assert row.count_nonzero() == 0
    assert row.__symm_tensor__
    shmem.shmem_barrier_all()  # all have looked
    there = symm_mori_shmem_tensor(row, (rank.me + 1) % rank.size)
    there.fill_(rank.me + 1)
    torch.cuda.synchronize()
    shmem.shmem_barrier_all()
    assert (row == (rank.me - 1) % rank.size + 1).all()
    mori_shmem_free_tensor(row)


def test_tensors_of_torch(gpu: None) -> None:
    gpus.need_cuda_torch()
    world = Ranks(2, {"MORI_SHMEM_DEVICE": "gpu"})
    try:
        world.run(tensors)
    finally:
        world.stop()


KERNELS = Path(__file__).resolve().parents[3] / "python" / "mori" / "_kernels"

_MODULES = """
import glob
from mori import device
join()
from mori.shmem._world import load_shmem_module
arch = "gfx" if device.devices()[0].api == "HIP" else "sm_80"
def file(name):
    return glob.glob(os.path.join({kernels!r}, name + "." + arch + "*"))[0]
assert load_shmem_module(file("shmem_barrier")) == 0
assert load_shmem_module(file("io_copy_blocks")) == -1
assert shmem_finalize() == 0
say("done")
"""


def test_modules(gpu: None) -> None:
    program = _MODULES.format(kernels=str(KERNELS))
    with Programs(2, program, MORI_SHMEM_DEVICE="gpu") as programs:
        for rank in range(2):
            status, out, err = programs.rest(rank)
            assert (status, out) == (0, "done"), err


_CYCLES = """
join()
for cycle in range(3):
    at = shmem_malloc(1 << 20)
    shmem_p(at, cycle + me, 1 - me, "int64")
    shmem_barrier_on_stream()
    shmem_barrier_all()
    assert shmem_g(at, me, "int64") == cycle + 1 - me
    assert shmem_finalize() == 0
    if cycle < 2:
        line = sys.stdin.readline().strip()
        join(bytes.fromhex(line))
say("done")
"""


def test_finalize_and_again(gpu: None) -> None:
    from mori.shmem import shmem_get_unique_id

    with Programs(2, _CYCLES, MORI_SHMEM_DEVICE="gpu") as programs:
        for _ in range(2):
            uid = shmem_get_unique_id().hex()
            for process in programs.all:
                assert process.stdin is not None
                process.stdin.write(uid + "\n")
                process.stdin.flush()
        for rank in range(2):
            status, out, err = programs.rest(rank)
            assert (status, out) == (0, "done"), err


def test_a_rank_that_dies_is_named(gpu: None) -> None:
    program = """
join()
at = shmem_malloc(1 << 20)
shmem_barrier_all()
if me == 1:
    os.kill(os.getpid(), signal.SIGKILL)
failed(lambda: shmem_signal_wait_until(at, SHMEM_CMP_EQ, 1))
"""
    with Programs(3, program, MORI_SHMEM_DEVICE="gpu") as programs:
        for rank in (0, 2):
            assert programs.line(rank).startswith("PE 1 failed"), programs.fail(rank)


def test_places_that_differ_are_told(gpu: None) -> None:
    program = "say(shmem_init_attr(1, me, npes, bytes.fromhex(sys.argv[3])))"
    each = [{"MORI_SHMEM_DEVICE": place, "MORI_SHMEM_LOG_LEVEL": "error"} for place in ("gpu", "host")]
    with Programs(2, program, each) as programs:
        for rank in range(2):
            _, out, err = programs.rest(rank)
            assert out.endswith("-1")
            assert "on a GPU" in out + err
            assert "on host memory" in out + err


_THREADS = """
import ctypes, threading
cuda = ctypes.CDLL("libcuda.so.1") if os.environ.get("EMULATED") else None
uid = shmem_get_unique_id()
seen, errors = {}, []
def pe(rank):
    try:
        if cuda is not None:  # as torch.cuda.set_device makes one current
            context = ctypes.c_void_p()
            assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), rank) == 0
            assert cuda.cuCtxPushCurrent_v2(context) == 0
        else:
            import torch
            torch.cuda.set_device(rank)
            torch.zeros(1, device="cuda")
        assert shmem_init_attr(1, rank, 2, uid) == 0
        assert (shmem_mype(), shmem_npes()) == (rank, 2)
        at = shmem_malloc(4096)
        shmem_p(at, 7 + rank, 1 - rank, "int64")
        shmem_barrier_on_stream()
        shmem_barrier_all()
        assert shmem_g(at, rank, "int64") == 8 - rank
        from mori.shmem._world import heap_device
        seen[rank] = heap_device()
        shmem_free(at)
        assert shmem_finalize() == 0
    except BaseException as err:
        errors.append(repr(err))
        raise
threads = [threading.Thread(target=pe, args=(rank,)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
say(errors or sorted(seen.items()))
"""


def test_a_process_with_several_pes(gpu: None) -> None:
    """Each thread that says that it is another rank is a PE of its own, on the GPU that it has made current."""
    gpus.need(2)
    if gpus.real():
        gpus.need_cuda_torch()
    emulated = "" if gpus.real() else "1"
    with Programs(1, _THREADS, MORI_SHMEM_DEVICE="gpu", EMULATED=emulated) as programs:
        status, out, err = programs.rest(0, 60)
        assert (status, out) == (0, "[(0, 0), (1, 1)]"), err


def test_without_a_gpu_the_heap_is_in_host_memory() -> None:
    program = """
join()
from mori.shmem._world import heap_device
say(heap_device())
"""
    environment = {"MORI_SHMEM_DEVICE": "", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    if not gpus.real():
        environment["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH", "")
    with Programs(1, program, **environment) as programs:
        status, out, err = programs.rest(0)
        assert (status, out) == (0, "-1"), err


def test_a_heap_that_is_too_large_is_refused(gpu: None) -> None:
    program = "say(shmem_init_attr(1, me, npes, bytes.fromhex(sys.argv[3])))"
    own = {"MORI_SHMEM_DEVICE": "gpu", "MORI_SHMEM_HEAP_SIZE": "30T", "MORI_SHMEM_LOG_LEVEL": "error"}
    with Programs(1, program, [own]) as programs:
        _, out, err = programs.rest(0)
        assert out.endswith("-1")
        assert "reduce MORI_SHMEM_HEAP_SIZE" in out + err
