# SPDX-License-Identifier: MIT
"""Symmetric memory: what is allocated, freed, mapped and registered, and tensors over it."""

from __future__ import annotations

import ctypes
import itertools
import os
import tempfile

import numpy as np
import pytest

import mori.shmem as shmem
from ranks import Rank, Ranks, on_ranks


def left(rank: Rank) -> int:
    return (rank.me - 1) % rank.size


def right(rank: Rank) -> int:
    return (rank.me + 1) % rank.size


@on_ranks(2)
def test_numbers(rank: Rank) -> None:
    assert (shmem.shmem_mype(), shmem.shmem_npes()) == (rank.me, rank.size)
    assert shmem.shmem_num_qp_per_pe() == 4
    assert shmem.shmem_init_attr(1, rank.me, rank.size, bytes(128)) == 0, "it is initialised already"


@on_ranks(2)
def test_memory_begins_aligned_zero_and_apart(rank: Rank) -> None:
    del rank
    begins = [shmem.shmem_malloc(size) for size in (1, 255, 256, 257, 4096, 100_000)]
    assert all(at % 256 == 0 and at > 0 for at in begins)
    ends = [at + size for at, size in zip(begins, (1, 255, 256, 257, 4096, 100_000), strict=True)]
    spans = sorted(zip(begins, ends, strict=True))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    for at in begins:
        shmem.shmem_free(at)


@on_ranks(2)
def test_freed_memory_is_given_out_again(rank: Rank) -> None:
    del rank
    before = shmem.shmem_describe()["heap"]
    seen = set()
    for _ in range(50):
        at = shmem.shmem_malloc(1 << 20)
        seen.add(at)
        shmem.shmem_free(at)
    assert len(seen) == 1
    assert shmem.shmem_describe()["heap"]["used"] == before["used"]


@on_ranks(2)
@pytest.mark.parametrize("alignment", [1, 2, 64, 256, 512, 4096, 1 << 20])
def test_alignment(rank: Rank, alignment: int) -> None:
    del rank
    at = shmem.shmem_malloc_align(alignment, 1000)
    assert at % max(alignment, 256) == 0
    assert at > 0
    shmem.shmem_free(at)


@on_ranks(2)
def test_sizes_and_alignments_that_give_nothing(rank: Rank) -> None:
    del rank
    assert shmem.shmem_malloc(0) == 0
    assert shmem.shmem_calloc(0, 8) == 0
    assert shmem.shmem_ext_malloc_with_flags(0, 3) == 0
    for alignment in (0, 3, 255, 257):
        assert shmem.shmem_malloc_align(alignment, 64) == 0, alignment
    for size in (2**40, 2**63, 2**64 - 1):
        assert shmem.shmem_malloc(size) == 0, size
    assert shmem.shmem_calloc(2**40, 2**40) == 0
    for size in (-1, 2**64):
        with pytest.raises(ValueError, match="size must be from 0"):
            shmem.shmem_malloc(size)
    with pytest.raises(TypeError):
        shmem.shmem_malloc(1.5)  # type: ignore[arg-type]
    at = shmem.shmem_malloc(64)
    assert at > 0, "the heap is as before"
    shmem.shmem_free(at)


@on_ranks(2)
def test_calloc_is_zero(rank: Rank) -> None:
    del rank
    at = shmem.shmem_malloc(1024)
    ctypes.memset(at, 7, 1024)
    shmem.shmem_free(at)
    again = shmem.shmem_calloc(16, 64)
    assert ctypes.string_at(again, 1024) == bytes(1024)
    shmem.shmem_free(again)


@on_ranks(2)
def test_free_of_what_is_not_allocated(rank: Rank) -> None:
    del rank
    assert shmem.shmem_free(0) is None
    at = shmem.shmem_malloc(4096)
    shmem.shmem_free(at + 8)
    shmem.shmem_free(12345)
    shmem.shmem_free(at)
    shmem.shmem_free(at)
    assert shmem.shmem_malloc(4096) == at
    shmem.shmem_free(at)


def ask_for(rank: Rank, size: int) -> tuple[int, str]:
    """Return what an allocation gave, and what it logged on the standard error that ranks inherit."""
    with tempfile.TemporaryFile() as log:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            at = shmem.shmem_malloc(size + 4096 * rank.me)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        log.seek(0)
        return at, log.read().decode()


def ask_all(rank: Rank) -> int:
    del rank
    at = shmem.shmem_malloc(64)
    shmem.shmem_free(at)
    return at


def test_different_sizes_give_nothing_and_harm_nothing(ranks: Ranks) -> None:
    ranks.world(3)
    for at, logged in ranks.run(ask_for, 4096):
        assert at == 0
        assert all(f"malloc of {size} bytes" in logged for size in (4096, 8192, 12288))
    assert all(ranks.run(ask_all))


@on_ranks(4)
def test_loads_and_stores_reach_other_pes(rank: Rank) -> None:
    at = shmem.shmem_malloc(64)
    there = shmem.shmem_ptr_p2p(at, rank.me, right(rank))
    assert there not in (0, at)
    assert shmem.shmem_ptr(at, right(rank)) == there
    ctypes.c_uint64.from_address(there).value = 1000 + rank.me
    shmem.shmem_barrier_all()
    assert ctypes.c_uint64.from_address(at).value == 1000 + left(rank)
    shmem.shmem_barrier_all()
    shmem.shmem_free(at)


@on_ranks(2)
def test_addresses_that_are_not_mapped(rank: Rank) -> None:
    at = shmem.shmem_malloc(64)
    other = right(rank)
    assert shmem.shmem_ptr_p2p(at, rank.me, rank.me) == at
    assert shmem.shmem_ptr_p2p(12345, rank.me, rank.me) == 12345
    assert shmem.shmem_ptr_p2p(12345, rank.me, other) == 0
    assert shmem.shmem_ptr_p2p(0, rank.me, other) == 0
    for pe in (-1, rank.size, 2**31, -(2**40)):
        assert shmem.shmem_ptr_p2p(at, rank.me, pe) == 0
    assert shmem.shmem_ptr_p2p(at, other, rank.me) == 0, "my_pe is not this one"
    shmem.shmem_free(at)


@on_ranks(2)
def test_buffers(rank: Rank) -> None:
    memory = np.arange(64, dtype=np.uint64) + rank.me
    at = int(memory.ctypes.data)
    assert shmem.shmem_buffer_register(at, memory.nbytes) == 0
    heap = shmem.mori_shmem_create_tensor((64,), np.uint64)
    shmem.shmem_put(heap, memory, 64, right(rank))
    shmem.shmem_barrier_all()
    assert heap[0] == left(rank)
    assert shmem.shmem_buffer_deregister(at, memory.nbytes) == 0
    assert shmem.shmem_buffer_deregister(at, memory.nbytes) == -1, "it is registered no more"
    shmem.mori_shmem_free_tensor(heap)


@on_ranks(2)
def test_streams(rank: Rank) -> None:
    del rank

    class Stream:
        cuda_stream = 77

    for stream in (None, 0, 5, Stream()):
        assert shmem.shmem_barrier_on_stream(stream) is None  # type: ignore[func-returns-value]
    with pytest.raises(TypeError):
        shmem.shmem_barrier_on_stream("default")


@on_ranks(2)
def test_describe(rank: Rank) -> None:
    at = shmem.shmem_malloc(5000)
    described = shmem.shmem_describe()
    assert (described["pe"], described["npes"]) == (rank.me, 2)
    heap = described["heap"]
    assert heap["mode"] == "static_heap"
    assert heap["size"] == 256 << 20
    assert heap["allocations"] >= 1
    assert heap["used"] >= 5000
    assert {peer["path"] for peer in described["peers"]} == {"self", "mapped"}
    assert described["peers"][rank.me]["pid"] == os.getpid()
    shmem.shmem_free(at)


DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
]


@on_ranks(2)
@pytest.mark.parametrize("name", DTYPES)
def test_numpy_tensors(rank: Rank, name: str) -> None:
    tensor = shmem.mori_shmem_create_tensor((3, 5), name)
    assert isinstance(tensor, np.ndarray)
    assert (tensor.shape, tensor.dtype.name) == ((3, 5), name)
    assert tensor.__symm_tensor__ is True
    tensor.view(np.uint8)[...] = 0
    shmem.shmem_barrier_all()
    peer = shmem.symm_mori_shmem_tensor(tensor, right(rank))
    assert not getattr(peer, "__symm_tensor__", False)
    assert not getattr(tensor[0], "__symm_tensor__", False), "a part of it cannot be freed"
    peer[...] = np.ones((3, 5), tensor.dtype)
    shmem.shmem_barrier_all()
    assert (tensor == np.ones((3, 5), tensor.dtype)).all()
    shmem.shmem_barrier_all()
    shmem.mori_shmem_free_tensor(tensor)


@pytest.mark.usefixtures("torch_here")
@on_ranks(2)
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int32", "int64", "uint8", "float8_e4m3fn", "bool"])
def test_torch_tensors(rank: Rank, name: str) -> None:
    import torch

    dtype = getattr(torch, name)
    tensor = shmem.mori_shmem_create_tensor((3, 5), dtype)
    assert isinstance(tensor, torch.Tensor)
    assert (tuple(tensor.shape), tensor.dtype, tensor.device.type) == ((3, 5), dtype, "cpu")
    assert tensor.__symm_tensor__ is True
    assert shmem.symm_mori_shmem_tensor(tensor, rank.me) is tensor
    shmem.symm_mori_shmem_tensor(tensor, right(rank)).view(torch.uint8).fill_(1)
    shmem.shmem_barrier_all()
    assert bool((tensor.view(torch.uint8) == 1).all())
    shmem.shmem_barrier_all()
    shmem.mori_shmem_free_tensor(tensor)
    with pytest.raises(AssertionError):
        shmem.mori_shmem_free_tensor(tensor)


@on_ranks(3)
def test_list_of_all_ranks_tensors(rank: Rank) -> None:
    tensors = shmem.mori_shmem_create_tensor_list_intra_node((4,), np.int32, rank.size)
    assert len(tensors) == rank.size
    assert tensors[rank.me].__symm_tensor__ is True
    for pe, tensor in enumerate(tensors):
        tensor[rank.me] = 10 * rank.me + pe
    shmem.shmem_barrier_all()
    assert tensors[rank.me][: rank.size].tolist() == [10 * pe + rank.me for pe in range(rank.size)]
    shmem.shmem_barrier_all()
    shmem.mori_shmem_free_tensor(tensors[rank.me])


@on_ranks(2)
def test_tensors_that_are_refused(rank: Rank) -> None:
    ordinary = np.zeros(4)
    for call in (shmem.mori_shmem_free_tensor, lambda t: shmem.symm_mori_shmem_tensor(t, 0)):
        with pytest.raises(AssertionError, match="mori_shmem_create_tensor"):
            call(ordinary)
    with pytest.raises(AssertionError):
        shmem.mori_shmem_create_tensor((0,), np.float32)
    with pytest.raises(ValueError, match="negative"):
        shmem.mori_shmem_create_tensor((-1, 4), np.float32)
    with pytest.raises(ValueError, match="unsupported dtype"):
        shmem.mori_shmem_create_tensor((4,), "int3")
    tensor = shmem.mori_shmem_create_tensor(4, "float32")
    for pe in (-1, rank.size):
        with pytest.raises(ValueError, match=r"PE .* does not exist"):
            shmem.symm_mori_shmem_tensor(tensor, pe)
    shmem.mori_shmem_free_tensor(tensor)


@on_ranks(2)
def test_buffer_as_an_array(rank: Rank) -> None:
    del rank
    at = shmem.shmem_malloc(64)
    buffer = shmem.MoriShmemBuffer(at, 64, np.float32)
    assert (buffer.ptr, buffer.nbytes, buffer.dtype) == (at, 64, np.float32)
    array = np.asarray(buffer)
    assert (array.dtype, array.shape, array.ctypes.data) == (np.uint8, (64,), at)
    assert not hasattr(buffer, "__cuda_array_interface__"), "it is not on a GPU"
    shmem.shmem_free(at)
