// SPDX-License-Identifier: MIT
/// The one place that tells GPU vendors apart: which compiler reads this, how wide a warp is, who a thread is, and how
/// the threads of a warp and of a block meet. Kernels are written once above it; branches on MORI_DEVICE_* occur in the
/// headers of this folder only.
///
/// It needs no vendor SDK: no header of CUDA or ROCm is included, so a plain clang makes the code for both:
///
///     clang++ -x cuda --cuda-gpu-arch=sm_90    --cuda-device-only -nocudainc -nocudalib ...
///     clang++ -x hip  --offload-arch=gfx942    --cuda-device-only -nogpuinc  -nogpulib  ...
///     nvcc -x cu ...
///     c++ -std=c++17 ...            the CPU build: threads stand in for lanes, see cpu.hpp
#pragma once

#include <stdint.h>

#if defined(__HIP__)
#define MORI_DEVICE_HIP 1
#elif defined(__CUDACC__) || defined(__CUDA__)
#define MORI_DEVICE_CUDA 1
#else
#define MORI_DEVICE_CPU 1
#endif

#if defined(MORI_DEVICE_CPU)
#define MORI_DEVICE_INLINE inline
#define MORI_DEVICE_KERNEL(threads)
#define MORI_DEVICE_NOINLINE inline
#define MORI_DEVICE_APART inline
#define MORI_HOST_DEVICE
#define MORI_DEVICE_UNROLL
#define MORI_DEVICE_ROLLED
/// An object that the threads of a block share, as long as the kernel runs; its contents are any at first. One a function.
#define MORI_DEVICE_SHARED(Type, name) Type& name = ::mori::device::cpu::self.block->template shared<Type>()
#else
#define MORI_DEVICE_INLINE __attribute__((device)) inline __attribute__((always_inline))
/// What runs seldom is there once, and called.
#define MORI_DEVICE_NOINLINE __attribute__((device)) __attribute__((noinline))
/// The same in headers, which several sources of a program may include.
#define MORI_DEVICE_APART __attribute__((device)) inline __attribute__((noinline))
/// A function that the host calls, too; nvcc wants to be told that of constexpr ones.
#define MORI_HOST_DEVICE __attribute__((host)) __attribute__((device))
/// A kernel for blocks of up to so many threads, which says how many registers each may have.
#if defined(MORI_DEVICE_HIP)
// launch_bounds says nothing to clang for AMD: the compiler would keep to the registers of blocks of 1024 threads.
#define MORI_DEVICE_KERNEL(threads) __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#else
#define MORI_DEVICE_KERNEL(threads) __attribute__((global)) __attribute__((launch_bounds(threads, 1)))
#endif
#define MORI_DEVICE_UNROLL _Pragma("unroll")
/// Ahead of a loop that is to stay one: a kernel that runs for microseconds waits for each line of its code.
#define MORI_DEVICE_ROLLED _Pragma("unroll 1")
#define MORI_DEVICE_SHARED(Type, name) __attribute__((shared)) static Type name
#endif

/// sm_90 and up copy between global and shared memory by an engine of the SM, see CopyStream.
#if defined(MORI_DEVICE_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MORI_DEVICE_BULK_COPY 1
#endif

#if defined(MORI_DEVICE_CPU)
#include "mori/device/cpu.hpp"
#endif

namespace mori::device {

/// Lanes of a warp: 64 on AMD's CDNA, which calls it a wave. On the CPU it is small, so that a warp is few threads.
#if defined(MORI_DEVICE_HIP)
constexpr uint32_t kWarpSize = 64;
#elif defined(MORI_DEVICE_CUDA)
constexpr uint32_t kWarpSize = 32;
#else
constexpr uint32_t kWarpSize = cpu::kLanes;
#endif

#if defined(MORI_DEVICE_CUDA)
#define MORI_DEVICE_SPECIAL_REGISTER(function, name)        \
    MORI_DEVICE_INLINE uint32_t function() {                \
        uint32_t value = 0;                                 \
        asm("mov.u32 %0, %%" name ";" : "=r"(value));       \
        return value;                                       \
    }
MORI_DEVICE_SPECIAL_REGISTER(threadInBlock, "tid.x")
MORI_DEVICE_SPECIAL_REGISTER(blockSize, "ntid.x")
MORI_DEVICE_SPECIAL_REGISTER(blockInGrid, "ctaid.x")
MORI_DEVICE_SPECIAL_REGISTER(gridBlocks, "nctaid.x")
MORI_DEVICE_SPECIAL_REGISTER(laneInWarp, "laneid")
#undef MORI_DEVICE_SPECIAL_REGISTER
#elif defined(MORI_DEVICE_HIP)
MORI_DEVICE_INLINE uint32_t threadInBlock() { return __builtin_amdgcn_workitem_id_x(); }
MORI_DEVICE_INLINE uint32_t blockSize() { return __builtin_amdgcn_workgroup_size_x(); }
MORI_DEVICE_INLINE uint32_t blockInGrid() { return __builtin_amdgcn_workgroup_id_x(); }
MORI_DEVICE_INLINE uint32_t gridBlocks() { return __builtin_amdgcn_grid_size_x() / blockSize(); }
MORI_DEVICE_INLINE uint32_t laneInWarp() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
#else
MORI_DEVICE_INLINE uint32_t threadInBlock() { return cpu::self.thread; }
MORI_DEVICE_INLINE uint32_t blockSize() { return cpu::self.block->threads; }
MORI_DEVICE_INLINE uint32_t blockInGrid() { return cpu::self.block->index; }
MORI_DEVICE_INLINE uint32_t gridBlocks() { return cpu::self.block->blocks; }
MORI_DEVICE_INLINE uint32_t laneInWarp() { return cpu::self.thread % cpu::kLanes; }
#endif

/// Blocks are one-dimensional and whole warps.
MORI_DEVICE_INLINE uint32_t warpInBlock() { return threadInBlock() / kWarpSize; }
MORI_DEVICE_INLINE uint32_t warpsPerBlock() { return blockSize() / kWarpSize; }
MORI_DEVICE_INLINE uint32_t warpInGrid() { return blockInGrid() * warpsPerBlock() + warpInBlock(); }
MORI_DEVICE_INLINE uint32_t gridWarps() { return gridBlocks() * warpsPerBlock(); }

/// All threads of the block meet; what each did to memory before is seen by all of them after.
MORI_DEVICE_INLINE void blockSync() {
#if defined(MORI_DEVICE_CUDA)
    asm volatile("bar.sync 0;" ::: "memory");
#elif defined(MORI_DEVICE_HIP)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
    cpu::self.block->all.wait();
#endif
}

/// All lanes of the warp meet; what each did to memory before is seen by all of them after.
MORI_DEVICE_INLINE void warpSync() {
#if defined(MORI_DEVICE_CUDA)
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
#elif defined(MORI_DEVICE_HIP)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
    cpu::self.warp().sync();
#endif
}

/// The value that lane ``from`` has; all lanes call it with the same ``from``. It orders no memory.
MORI_DEVICE_INLINE uint64_t warpBroadcast(uint64_t value, uint32_t from) {
#if defined(MORI_DEVICE_CUDA)
    uint32_t low = 0;
    uint32_t high = 0;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(low) : "r"(uint32_t(value)), "r"(from));
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(high) : "r"(uint32_t(value >> 32)), "r"(from));
    return uint64_t(high) << 32 | low;
#elif defined(MORI_DEVICE_HIP)
    const uint32_t low = uint32_t(__builtin_amdgcn_readlane(int(uint32_t(value)), int(from)));
    const uint32_t high = uint32_t(__builtin_amdgcn_readlane(int(uint32_t(value >> 32)), int(from)));
    return uint64_t(high) << 32 | low;
#else
    return cpu::self.warp().broadcast(laneInWarp(), value, from);
#endif
}

/// One bit a lane: whose ``mine`` is true. It orders no memory.
MORI_DEVICE_INLINE uint64_t warpBallot(bool mine) {
#if defined(MORI_DEVICE_CUDA)
    uint32_t bits = 0;
    asm volatile(
        "{\n\t.reg .pred mine;\n\tsetp.ne.u32 mine, %1, 0;\n\tvote.sync.ballot.b32 %0, mine, 0xffffffff;\n\t}"
        : "=r"(bits)
        : "r"(uint32_t(mine)));
    return bits;
#elif defined(MORI_DEVICE_HIP)
    return __builtin_amdgcn_ballot_w64(mine);
#else
    return cpu::self.warp().ballot(laneInWarp(), mine);
#endif
}

/// One bit a lane: whose value is the calling lane's. It orders no memory.
MORI_DEVICE_INLINE uint64_t warpMatch(uint32_t value) {
#if defined(MORI_DEVICE_CUDA)
    uint32_t bits = 0;
    asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(bits) : "r"(value));
    return bits;
#else
    uint64_t mine = 0;
    for (uint64_t left = warpBallot(true); left != 0;) {  // one value at a time
        const uint32_t seen = uint32_t(warpBroadcast(value, uint32_t(__builtin_ctzll(left))));
        const uint64_t same = warpBallot(value == seen);
        mine = value == seen ? same : mine;
        left &= ~same;
    }
    return mine;
#endif
}

/// The values of all lanes, or'd. It orders no memory.
MORI_DEVICE_INLINE uint64_t warpOr(uint64_t value) {
#if defined(MORI_DEVICE_CUDA)
    uint32_t low = 0;
    uint32_t high = 0;
    asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(low) : "r"(uint32_t(value)));
    asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(high) : "r"(uint32_t(value >> 32)));
    return uint64_t(high) << 32 | low;
#else
    uint64_t all = 0;
    for (uint64_t left = warpBallot(value != 0); left != 0; left &= left - 1) {
        all |= warpBroadcast(value, uint32_t(__builtin_ctzll(left)));
    }
    return all;
#endif
}

// nvcc has few of the compilers' built-in functions in device code, so CUDA's instructions are named here.
MORI_DEVICE_INLINE uint32_t bitCount(uint64_t bits) {
#if defined(MORI_DEVICE_CUDA)
    uint32_t count = 0;
    asm("popc.b64 %0, %1;" : "=r"(count) : "l"(bits));
    return count;
#else
    return uint32_t(__builtin_popcountll(bits));
#endif
}

/// The place of the lowest bit that is set; there is one.
MORI_DEVICE_INLINE uint32_t lowestBit(uint64_t bits) {
#if defined(MORI_DEVICE_CUDA)
    uint64_t mirrored = 0;
    uint32_t place = 0;
    asm("brev.b64 %0, %1;" : "=l"(mirrored) : "l"(bits));
    asm("clz.b64 %0, %1;" : "=r"(place) : "l"(mirrored));
    return place;
#else
    return uint32_t(__builtin_ctzll(bits));
#endif
}

/// The bytes in the opposite order: big-endian of little-endian, and back.
MORI_DEVICE_INLINE uint32_t swapBytes(uint32_t value) {
#if defined(MORI_DEVICE_CUDA)
    uint32_t swapped = 0;
    asm("prmt.b32 %0, %1, 0, 0x0123;" : "=r"(swapped) : "r"(value));
    return swapped;
#else
    return __builtin_bswap32(value);
#endif
}

/// Ends the kernel with an error that the host sees at its next call.
MORI_DEVICE_INLINE void trap() {
#if defined(MORI_DEVICE_CUDA)
    asm volatile("trap;");
#else
    __builtin_trap();
#endif
}

}  // namespace mori::device
