# SPDX-License-Identifier: MIT
"""A Triton kernel that puts data into the next PE's memory, waits for its own, and works on it.

    torchrun --nproc-per-node 2 examples/gpu/triton_put.py

Needs torch with GPUs and Triton 3.6 or later. If there are fewer GPUs than PEs, PEs share them.
"""

import argparse
import os
import sys

import torch
import triton
import triton.language as tl

import mori.ir.triton as mori_device
from mori import ir, shmem

SIGNAL_SET = tl.constexpr(ir.SIGNAL_SET)


@triton.jit
def pass_on(target, source, doubled, signal, count, turn, BLOCK: tl.constexpr):
    """One program. target, source and signal are symmetric."""
    right = (mori_device.my_pe() + 1) % mori_device.n_pes()
    mori_device.putmem_nbi_signal_block(target, source, count * 4, signal, turn, SIGNAL_SET, right, 0)
    mori_device.uint64_wait_until_equals(signal, turn)  # the data arrives before its signal
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(doubled + at, 2 * tl.load(target + at, mask=at < count), mask=at < count)
    mori_device.barrier_all_block()  # all have read this turn's data before the next turn's


def numbers(pe: int, turn: int, count: int) -> torch.Tensor:
    """The numbers that a PE sends in a turn."""
    return (torch.arange(count, device="cuda") + 1000 * pe + 10 * turn).remainder(4096).float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="floats a turn")
    parser.add_argument("--turns", type=int, default=10)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    os.environ["MORI_SHMEM_DEVICE"] = "gpu"  # the current GPU
    shmem.shmem_init()
    mori_device.install_hook()
    pe, npes = shmem.shmem_mype(), shmem.shmem_npes()

    source = shmem.mori_shmem_create_tensor((args.count,), torch.float32)
    target = shmem.mori_shmem_create_tensor((args.count,), torch.float32)
    signal = shmem.mori_shmem_create_tensor((1,), torch.int64)  # symmetric memory is zero at first
    doubled = torch.empty(args.count, device="cuda")
    libraries = mori_device.extern_libs()
    shmem.shmem_barrier_all()
    for turn in range(1, args.turns + 1):
        source.copy_(numbers(pe, turn, args.count))
        pass_on[(1,)](target, source, doubled, signal, args.count, turn, BLOCK=1024, num_warps=8, extern_libs=libraries)
        wanted = numbers((pe - 1) % npes, turn, args.count)
        torch.cuda.synchronize()
        if not (torch.equal(target, wanted) and torch.equal(doubled, 2 * wanted)):
            wrong = int((target != wanted).sum())
            sys.exit(f"PE {pe}, turn {turn}: {wrong} of {args.count} floats are not what PE {(pe - 1) % npes} has put")
        shmem.shmem_barrier_all()  # all have checked this turn's data, so the next may arrive
    if pe == 0:
        where = f"{min(npes, torch.cuda.device_count())} x {torch.cuda.get_device_name()}"
        print(f"{npes} PEs on {where}: {args.turns} turns of {args.count} floats are right")
    for tensor in (source, target, signal):
        shmem.mori_shmem_free_tensor(tensor)
    shmem.shmem_finalize()


if __name__ == "__main__":
    main()
