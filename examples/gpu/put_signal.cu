// SPDX-License-Identifier: MIT
// A kernel that hands data to the next PE and waits for what the last one hands to this: one source for NVIDIA and AMD.
// put_signal.py compiles nothing: make the code first, for the GPUs that are there. The headers come with mori:
//
//     include=$(python -c 'import mori; print(mori.get_include())')
//
//     nvcc -std=c++17 -O3 -arch=compute_90 -ptx -I$include -o put_signal.ptx put_signal.cu
//
//     clang++-19 -std=c++17 -O3 -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_90
//         --cuda-feature=+ptx80 -S -I$include -o put_signal.ptx put_signal.cu
//
//     clang++-19 -std=c++17 -O3 -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib
//         --offload-arch=gfx942 -I$include -o put_signal.hsaco put_signal.cu
#include "mori/shmem/device.hpp"

using namespace mori::shmem;

/// One block. target, source and signal are symmetric; turn is 1 in the first launch, 2 in the second and so on.
extern "C" MORI_DEVICE_KERNEL(256) void pass_on(float* target, const float* source, uint64_t count, uint64_t* signal,
                                                uint64_t turn) {
    const int next = (ShmemMyPe() + 1) % ShmemNPes();
    ShmemPutFloatNbiSignalBlock(target, source, count, signal, turn, AMO_SIGNAL_SET, next);
    // The signal comes after the payload, so who has seen it may read the target.
    ShmemUint64WaitUntilEquals(signal, turn);
    mori::device::blockSync();
    float* const mine = target + count;
    for (uint64_t i = mori::device::threadInBlock(); i < count; i += mori::device::blockSize()) {
        mine[i] = 2 * target[i];
    }
    // Nobody puts the next turn's data before all have read this turn's.
    ShmemBarrierAllBlock();
}
