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

/// A part of the dynamic shared memory of a block: whole lines of 128 bytes.
struct SharedPart {
    uint32_t begin, bytes;
};

/// How much of it there is for streams.
MORI_DEVICE_INLINE uint32_t sharedBytes() {
    uint32_t bytes = 0;
#if defined(MORI_DEVICE_BULK_COPY)
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
#endif
    return bytes;
}

/// The part of a warp where all have as much.
MORI_DEVICE_INLINE SharedPart sharedPartOfWarp() {
    constexpr uint32_t kLine = 128;
    const uint32_t each = sharedBytes() / warpsPerBlock() / kLine * kLine;
    return {warpInBlock() * each, each};
}

#if defined(MORI_DEVICE_BULK_COPY)

namespace internal {

/// The launch says how long it is. Bulk copies want 16-byte aligned addresses; stages begin on lines of 128.
extern __attribute__((shared)) __attribute__((aligned(128))) unsigned char streamShared[];

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
template <uint32_t kStages>
class CopyStreamOf {
public:
    MORI_DEVICE_INLINE CopyStreamOf() : CopyStreamOf(sharedPartOfWarp()) {}

    MORI_DEVICE_INLINE explicit CopyStreamOf(SharedPart mine) {
        constexpr uint32_t kLine = 128;
        constexpr uint32_t kHead = (kStages * sizeof(internal::StreamStage) + kLine - 1) / kLine * kLine;
        static_assert(kStages != kStreamStages || kHead <= streamSharedBytes(0));
        if (mine.bytes < kHead + kStages * kLeastStageBytes) {
            return;
        }
        stageBytes_ = (mine.bytes - kHead) / kStages / kLine * kLine;
        unsigned char* const begin = internal::streamShared + mine.begin;
        stages_ = reinterpret_cast<internal::StreamStage*>(begin);
        data_ = internal::sharedAddress(begin) + kHead;
        if (laneInWarp() == 0) {
            for (uint32_t i = 0; i < kStages; i++) {
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
        if ((uint64_t(dst) | bytes) % 16 == 0) {  // seldom otherwise, and most of what this would cost
            copyAligned(dst, src, bytes);
            return;
        }
        const Alignment part(dst, bytes, 16);
        internal::copyBytes(dst, src, part.head, {laneInWarp(), kWarpSize});
        const uint64_t last = part.head + part.middle;
        internal::copyBytes(dst + last, src + last, part.tail, {laneInWarp(), kWarpSize});
        copyAligned(dst + part.head, src + part.head, part.middle);
    }

    /// All copies of the stream are done: what this thread releases next covers them.
    MORI_DEVICE_INLINE void finish() {
        if (laneInWarp() == 0 && stageBytes_ != 0) {
            while (ahead_ > 0) {
                store();
            }
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            // From the copy engine's view of memory to that of ordinary accesses, which fences order.
            asm volatile("fence.proxy.async;" ::: "memory");
        }
        warpSync();
    }

    /// All copies are done but the last kYoung. Not many are waited for, if more than that have begun since the others did.
    MORI_DEVICE_INLINE void finishOld() {
        if (laneInWarp() == 0 && stageBytes_ != 0) {
            asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kStages) : "memory");
            asm volatile("fence.proxy.async;" ::: "memory");
        }
        warpSync();
    }

private:
    static constexpr uint32_t kLeastStageBytes = 512;
    /// Loads that run ahead of the stores; the other stages are on their way out.
    static constexpr uint32_t kAhead = kStages / 2;

public:
    static constexpr uint32_t kYoung = kStages + kAhead;

private:

    MORI_DEVICE_INLINE uint32_t barrier(uint32_t stage) const {
        return internal::sharedAddress(&stages_[stage].barrier);
    }

    /// Addresses and bytes are multiples of 16.
    MORI_DEVICE_INLINE void copyAligned(char* to, const char* from, uint64_t bytes) {
        if (laneInWarp() == 0) {
            while (bytes > 0) {
                const uint32_t now = uint32_t(bytes < stageBytes_ ? bytes : stageBytes_);
                load(to, from, now);
                to += now;
                from += now;
                bytes -= now;
            }
        }
        warpSync();
    }

    /// The stage behind one.
    MORI_DEVICE_INLINE static uint32_t next(uint32_t stage) { return stage + 1 == kStages ? 0 : stage + 1; }

    MORI_DEVICE_INLINE void load(char* to, const char* from, uint32_t bytes) {
        // kAhead stores fewer than loads have begun. The stage is free when its last store has read it, which is so
        // when no more than the youngest stores have not: as many as stages are left, but one.
        asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kStages - kAhead - 1) : "memory");
        internal::StreamStage& stage = stages_[loadAt_];
        stage.to = to;
        stage.bytes = bytes;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier(loadAt_)), "r"(bytes) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                data_ + loadAt_ * stageBytes_),
            "l"(internal::globalAddress(from)), "r"(bytes), "r"(barrier(loadAt_))
            : "memory");
        loadAt_ = next(loadAt_);
        ahead_++;
        if (ahead_ > kAhead) {
            store();
        }
    }

    MORI_DEVICE_INLINE void store() {
        const internal::StreamStage& stage = stages_[storeAt_];
        internal::barrierWait(barrier(storeAt_), storeParity_);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(internal::globalAddress(stage.to)),
                     "r"(data_ + storeAt_ * stageBytes_), "r"(uint32_t(stage.bytes))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        storeAt_ = next(storeAt_);
        storeParity_ ^= storeAt_ == 0 ? 1 : 0;
        ahead_--;
    }

    internal::StreamStage* stages_ = nullptr;
    uint32_t data_ = 0;        // of the shared space
    uint32_t stageBytes_ = 0;  // 0: every copy is a warpCopy
    uint32_t loadAt_ = 0, storeAt_ = 0;  // stages
    uint32_t storeParity_ = 0;           // of how often the stages were gone round
    uint32_t ahead_ = 0;                 // loads that have no store yet
};

#else

/// All lanes of a warp call each method, with the same arguments.
template <uint32_t>
class CopyStreamOf {
public:
    MORI_DEVICE_INLINE CopyStreamOf() = default;
    MORI_DEVICE_INLINE explicit CopyStreamOf(SharedPart) {}

    /// Copies, now or by finish(). Copies of one stream are in no order.
    MORI_DEVICE_INLINE void copy(void* to, const void* from, uint64_t bytes) { warpCopy(to, from, bytes); }

    /// All copies of the stream are done: what this thread releases next covers them.
    MORI_DEVICE_INLINE void finish() { warpSync(); }

    /// All copies are done but the last kYoung.
    MORI_DEVICE_INLINE void finishOld() { warpSync(); }
    static constexpr uint32_t kYoung = 2;
};

#endif

using CopyStream = CopyStreamOf<kStreamStages>;

}  // namespace mori::device
