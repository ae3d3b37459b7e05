// SPDX-License-Identifier: MIT
/// A warp's stream of copies, several of them under way at a time.
///
/// On sm_90 and up, where the launch gives the block dynamic shared memory, the copies go through it by bulk copies of
/// the SM's copy engine: one lane keeps more bytes in flight than all lanes could in registers, so few blocks fill a
/// link. Elsewhere each copy is a warpCopy.
#pragma once

#include "mori/device/copy.hpp"

namespace mori::device {

/// Stages of shared memory of a warp: a bulk copy takes one, on its way in and on its way out.
constexpr uint32_t kStreamStages = 8;

/// What a launch gives each warp of a block as dynamic shared memory, for copies of up to stageBytes at once, which is a
/// multiple of 128.
MORI_HOST_DEVICE constexpr uint32_t streamSharedBytes(uint32_t stageBytes) { return 256 + kStreamStages * stageBytes; }

#if defined(MORI_DEVICE_BULK_COPY)

namespace internal {

/// The launch says how long it is. Bulk copies want 16-byte aligned addresses; stages begin on lines of 128.
extern __attribute__((shared)) __attribute__((aligned(128))) unsigned char streamShared[];

MORI_DEVICE_INLINE uint32_t streamSharedSize() {
    uint32_t bytes = 0;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return bytes;
}

MORI_DEVICE_INLINE uint32_t sharedAddress(const void* address) {
    uint64_t shared = 0;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(shared) : "l"(address));
    return uint32_t(shared);
}

/// A copy between its load and its store.
struct StreamStage {
    uint64_t barrier;  // an mbarrier, which the load's bytes complete
    char* to;
    uint64_t bytes;
};
static_assert(kStreamStages * sizeof(StreamStage) <= streamSharedBytes(0));

/// Bounded by the copy engine: it ends each copy, or the kernel with an error.
MORI_DEVICE_INLINE void barrierWait(uint32_t barrier, uint32_t parity) {
    uint32_t done = 0;
    while (done == 0) {
        asm volatile(
            "{\n\t.reg .pred done;\n\t"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, done;\n\t}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    }
}

}  // namespace internal

/// All lanes of a warp call each method, with the same arguments.
class CopyStream {
public:
    MORI_DEVICE_INLINE CopyStream() {
        const uint32_t line = 128;
        const uint32_t mine = internal::streamSharedSize() / warpsPerBlock() / line * line;
        if (mine < streamSharedBytes(kLeastStageBytes)) {
            return;
        }
        stageBytes_ = (mine - streamSharedBytes(0)) / kStreamStages / line * line;
        unsigned char* const begin = internal::streamShared + warpInBlock() * mine;
        stages_ = reinterpret_cast<internal::StreamStage*>(begin);
        data_ = internal::sharedAddress(begin) + streamSharedBytes(0);
        if (laneInWarp() == 0) {
            for (uint32_t i = 0; i < kStreamStages; i++) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(i)) : "memory");
            }
            // The copy engine must see barriers that are ready.
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        warpSync();
    }

    /// Copies, now or by finish(). Copies of one stream are in no order.
    MORI_DEVICE_INLINE void copy(void* to, const void* from, uint64_t bytes) {
        char* const dst = static_cast<char*>(to);
        const char* const src = static_cast<const char*>(from);
        if (stageBytes_ == 0 || (uint64_t(dst) - uint64_t(src)) % 16 != 0) {
            warpCopyApart(to, from, bytes);
            return;
        }
        const Alignment part(dst, bytes, 16);
        internal::copyBytes(dst, src, part.head, {laneInWarp(), kWarpSize});
        const uint64_t last = part.head + part.middle;
        internal::copyBytes(dst + last, src + last, part.tail, {laneInWarp(), kWarpSize});
        if (laneInWarp() == 0) {
            for (uint64_t at = part.head; at < last; at += stageBytes_) {
                load(dst + at, src + at, uint32_t(last - at < stageBytes_ ? last - at : stageBytes_));
            }
        }
        warpSync();
    }

    /// All copies of the stream are done: what this thread releases next covers them.
    MORI_DEVICE_INLINE void finish() {
        if (laneInWarp() == 0 && stageBytes_ != 0) {
            while (stored_ < loaded_) {
                store();
            }
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            // From the copy engine's view of memory to that of ordinary accesses, which fences order.
            asm volatile("fence.proxy.async;" ::: "memory");
        }
        warpSync();
    }

private:
    static constexpr uint32_t kLeastStageBytes = 512;
    /// Loads that run ahead of the stores; the other stages are on their way out.
    static constexpr uint32_t kAhead = 4;

    MORI_DEVICE_INLINE uint32_t barrier(uint32_t stage) const {
        return internal::sharedAddress(&stages_[stage].barrier);
    }

    MORI_DEVICE_INLINE void load(char* to, const char* from, uint32_t bytes) {
        // kAhead stores fewer than loads have begun. The stage is free when its last store has read it, which is so
        // when no more than the youngest 8 - 4 - 1 stores have not.
        static_assert(kStreamStages - kAhead - 1 == 3);
        asm volatile("cp.async.bulk.wait_group.read 3;" ::: "memory");
        const uint32_t stage = loaded_ % kStreamStages;
        stages_[stage].to = to;
        stages_[stage].bytes = bytes;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier(stage)), "r"(bytes)
                     : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                data_ + stage * stageBytes_),
            "l"(internal::globalAddress(from)), "r"(bytes), "r"(barrier(stage))
            : "memory");
        loaded_++;
        if (loaded_ - stored_ > kAhead) {
            store();
        }
    }

    MORI_DEVICE_INLINE void store() {
        const uint32_t stage = stored_ % kStreamStages;
        internal::barrierWait(barrier(stage), stored_ / kStreamStages % 2);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                         internal::globalAddress(stages_[stage].to)),
                     "r"(data_ + stage * stageBytes_), "r"(uint32_t(stages_[stage].bytes))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        stored_++;
    }

    internal::StreamStage* stages_ = nullptr;
    uint32_t data_ = 0;        // of the shared space
    uint32_t stageBytes_ = 0;  // 0: every copy is a warpCopy
    uint32_t loaded_ = 0;
    uint32_t stored_ = 0;
};

#else

/// All lanes of a warp call each method, with the same arguments.
class CopyStream {
public:
    /// Copies, now or by finish(). Copies of one stream are in no order.
    MORI_DEVICE_INLINE void copy(void* to, const void* from, uint64_t bytes) { warpCopy(to, from, bytes); }

    /// All copies of the stream are done: what this thread releases next covers them.
    MORI_DEVICE_INLINE void finish() { warpSync(); }
};

#endif

}  // namespace mori::device
