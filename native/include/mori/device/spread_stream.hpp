// SPDX-License-Identifier: MIT
/// A warp's stream of copies from one place to several: the source is read once, whatever the number of targets.
///
/// On sm_90 and up, where the launch gives the block dynamic shared memory, the bytes go through it by bulk copies: one
/// load, and a store by each lane that has a target. Elsewhere they go through registers.
#pragma once

#include "mori/device/copy_stream.hpp"

namespace mori::device {

/// Stages of shared memory of a warp: a load takes one until its stores have read it.
constexpr uint32_t kSpreadStages = 4;

/// What a launch gives each warp of a block as dynamic shared memory, for copies of up to stageBytes at once, which is a
/// multiple of 128.
MORI_HOST_DEVICE constexpr uint32_t spreadSharedBytes(uint32_t stageBytes) {
    return kSpreadStages * (128 + 32 * 8) + kSpreadStages * stageBytes;
}

namespace internal {

/// Registers hold what is on its way, kInFlight chunks a lane.
MORI_DEVICE_INLINE void spreadWords(const char* to, const char* from, uint64_t bytes, uint64_t targets) {
    constexpr uint32_t kInFlight = 4;
    const uint64_t count = bytes / sizeof(Chunk);
    for (uint64_t at = 0; at < count; at += kInFlight * kWarpSize) {
        Chunk words[kInFlight];
        MORI_DEVICE_UNROLL
        for (uint32_t k = 0; k < kInFlight; k++) {
            const uint64_t mine = at + k * kWarpSize + laneInWarp();
            if (mine < count) {
                words[k] = loadOnce<Chunk>(from + mine * sizeof(Chunk));
            }
        }
        for (uint64_t left = targets; left != 0; left &= left - 1) {
            char* const target = reinterpret_cast<char*>(warpBroadcast(uint64_t(to), lowestBit(left)));
            MORI_DEVICE_UNROLL
            for (uint32_t k = 0; k < kInFlight; k++) {
                const uint64_t mine = at + k * kWarpSize + laneInWarp();
                if (mine < count) {
                    storeOnce(target + mine * sizeof(Chunk), words[k]);
                }
            }
        }
    }
}

/// Any alignment, any length.
MORI_DEVICE_INLINE void spreadNow(char* to, const char* from, uint64_t bytes) {
    const uint64_t targets = warpBallot(to != nullptr);
    const bool odd = to != nullptr && uint64_t(to) % sizeof(Chunk) != 0;
    if (warpBallot(odd) == 0 && uint64_t(from) % sizeof(Chunk) == 0 && bytes % sizeof(Chunk) == 0) {
        spreadWords(to, from, bytes, targets);
        return;
    }
    for (uint64_t left = targets; left != 0; left &= left - 1) {
        warpCopy(reinterpret_cast<char*>(warpBroadcast(uint64_t(to), lowestBit(left))), from, bytes);
    }
}

}  // namespace internal

#if defined(MORI_DEVICE_BULK_COPY)

/// All lanes of a warp call each method.
class SpreadStream {
public:
    MORI_DEVICE_INLINE SpreadStream() {
        const uint32_t line = 128;
        const uint32_t mine = internal::streamSharedSize() / warpsPerBlock() / line * line;
        if (mine < spreadSharedBytes(kLeastStageBytes)) {
            return;
        }
        stageBytes_ = (mine - spreadSharedBytes(0)) / kSpreadStages / line * line;
        unsigned char* const begin = internal::streamShared + warpInBlock() * mine;
        stages_ = reinterpret_cast<Stage*>(begin);
        data_ = internal::sharedAddress(begin) + spreadSharedBytes(0);
        if (laneInWarp() == 0) {
            for (uint32_t i = 0; i < kSpreadStages; i++) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(i)) : "memory");
            }
            // The copy engine must see barriers that are ready.
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        warpSync();
    }

    /// Copies to every lane's ``to`` that is not null, now or by finish(). The other arguments are the same in all lanes.
    /// Copies of one stream are in no order.
    MORI_DEVICE_INLINE void copy(char* to, const char* from, uint64_t bytes) {
        const bool odd = (to != nullptr && uint64_t(to) % 16 != 0) || uint64_t(from) % 16 != 0 || bytes % 16 != 0;
        if (stageBytes_ == 0 || warpBallot(odd) != 0) {
            internal::spreadNow(to, from, bytes);
            return;
        }
        for (uint64_t at = 0; at < bytes; at += stageBytes_) {
            load(to == nullptr ? nullptr : to + at, from + at,
                 uint32_t(bytes - at < stageBytes_ ? bytes - at : stageBytes_));
        }
    }

    /// All copies of the stream are done: what these lanes release next covers them.
    MORI_DEVICE_INLINE void finish() {
        if (stageBytes_ != 0) {
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
    /// Loads that run ahead of the stores.
    static constexpr uint32_t kAhead = 2;

    struct Stage {
        uint64_t barrier;  // an mbarrier, which the load's bytes complete
        uint64_t bytes;
        uint64_t unused[14];
        char* to[32];  // by lane
    };
    static_assert(kSpreadStages * sizeof(Stage) == spreadSharedBytes(0));

    MORI_DEVICE_INLINE uint32_t barrier(uint32_t stage) const {
        return internal::sharedAddress(&stages_[stage].barrier);
    }

    MORI_DEVICE_INLINE void load(char* to, const char* from, uint32_t bytes) {
        // kAhead stores fewer than loads have begun. The stage is free when its last store has read it, which is so
        // when no more than the youngest 4 - 2 - 1 stores of each lane have not.
        static_assert(kSpreadStages - kAhead - 1 == 1);
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        const uint32_t stage = loaded_ % kSpreadStages;
        warpSync();
        stages_[stage].to[laneInWarp()] = to;
        if (laneInWarp() == 0) {
            stages_[stage].bytes = bytes;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier(stage)), "r"(bytes)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    data_ + stage * stageBytes_),
                "l"(internal::globalAddress(from)), "r"(bytes), "r"(barrier(stage))
                : "memory");
        }
        warpSync();
        loaded_++;
        if (loaded_ - stored_ > kAhead) {
            store();
        }
    }

    MORI_DEVICE_INLINE void store() {
        const uint32_t stage = stored_ % kSpreadStages;
        internal::barrierWait(barrier(stage), stored_ / kSpreadStages % 2);
        char* const to = stages_[stage].to[laneInWarp()];
        if (to != nullptr) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(internal::globalAddress(to)),
                         "r"(data_ + stage * stageBytes_), "r"(uint32_t(stages_[stage].bytes))
                         : "memory");
        }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        stored_++;
    }

    Stage* stages_ = nullptr;
    uint32_t data_ = 0;        // of the shared space
    uint32_t stageBytes_ = 0;  // 0: everything goes through registers
    uint32_t loaded_ = 0;
    uint32_t stored_ = 0;
};

#else

/// All lanes of a warp call each method.
class SpreadStream {
public:
    /// Copies to every lane's ``to`` that is not null, now or by finish(). The other arguments are the same in all lanes.
    /// Copies of one stream are in no order.
    MORI_DEVICE_INLINE void copy(char* to, const char* from, uint64_t bytes) { internal::spreadNow(to, from, bytes); }

    /// All copies of the stream are done: what these lanes release next covers them.
    MORI_DEVICE_INLINE void finish() { warpSync(); }
};

#endif

}  // namespace mori::device
