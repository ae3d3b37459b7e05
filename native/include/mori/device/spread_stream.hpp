// SPDX-License-Identifier: MIT
/// A warp's stream of copies from one place to several: the source is read once, whatever the number of targets, and ahead of them.
///
/// On sm_90 and up, where the launch gives the block dynamic shared memory, the bytes go through it by bulk copies: one
/// load, and a store by each lane that has a target. Elsewhere they go through registers, and nothing is read ahead.
#pragma once

#include "mori/device/copy_stream.hpp"

namespace mori::device {

/// Stages of shared memory of a warp: a load takes one until its stores have read it.
constexpr uint32_t kSpreadStages = 4;

/// What a launch gives each warp of a block as dynamic shared memory, for copies of up to stageBytes at once, which is a
/// multiple of 128.
MORI_HOST_DEVICE constexpr uint32_t spreadSharedBytes(uint32_t stageBytes) { return 128 + kSpreadStages * stageBytes; }

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

}  // namespace internal

/// A warp copies to every lane's ``to`` that is not null. The other arguments are the same in all lanes; any alignment, any length.
MORI_DEVICE_INLINE void spread(char* to, const char* from, uint64_t bytes) {
    const uint64_t targets = warpBallot(to != nullptr);
    const bool odd = to != nullptr && uint64_t(to) % sizeof(Chunk) != 0;
    if (warpBallot(odd) == 0 && uint64_t(from) % sizeof(Chunk) == 0 && bytes % sizeof(Chunk) == 0) {
        if (targets != 0) {
            internal::spreadWords(to, from, bytes, targets);
        }
        return;
    }
    for (uint64_t left = targets; left != 0; left &= left - 1) {
        warpCopyApart(reinterpret_cast<char*>(warpBroadcast(uint64_t(to), lowestBit(left))), from, bytes);
    }
}

#if defined(MORI_DEVICE_BULK_COPY)

/// Pieces are fetched, and in the same order stored, each to several places: await(), store() for some lanes, as often as there are targets, release().
/// All lanes of a warp call each method, with the same arguments but for store()'s first. Addresses and lengths are multiples of 16.
class SpreadStream {
public:
    MORI_DEVICE_INLINE SpreadStream() {
        const uint32_t line = 128;
        const uint32_t mine = sharedPartOfWarp().bytes;
        if (mine < spreadSharedBytes(kLeastStageBytes)) {
            return;
        }
        stageBytes_ = (mine - spreadSharedBytes(0)) / kSpreadStages / line * line;
        barriers_ = internal::sharedAddress(internal::streamShared + warpInBlock() * mine);
        if (laneInWarp() == 0) {
            for (uint32_t i = 0; i < kSpreadStages; i++) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + i * 8) : "memory");
            }
            // The copy engine must see barriers that are ready.
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        warpSync();
    }

    /// Bytes of a piece at most; 0: nothing is read ahead, and the caller copies by spread().
    MORI_DEVICE_INLINE uint32_t stageBytes() const { return stageBytes_; }

    /// At first all stages are free. Later one is when no more than the youngest stores of each lane but one may still read it.
    MORI_DEVICE_INLINE bool isFull() const { return fetched_ >= kSpreadStages && fetched_ - stored_ > kAhead; }

    /// Begins to bring a piece. Not if the stream is full.
    MORI_DEVICE_INLINE void fetch(const char* from, uint32_t bytes) {
        static_assert(kSpreadStages - kAhead - 1 == 1);
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        warpSync();
        const uint32_t stage = fetched_ % kSpreadStages;
        if (laneInWarp() == 0) {
            const uint32_t barrier = barriers_ + stage * 8;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(data(stage)),
                "l"(internal::globalAddress(from)), "r"(bytes), "r"(barrier)
                : "memory");
        }
        fetched_++;
    }

    /// Waits for the oldest piece that was fetched and not released.
    MORI_DEVICE_INLINE void await() const {
        internal::barrierWait(barriers_ + stored_ % kSpreadStages * 8, stored_ / kSpreadStages % 2);
    }

    /// Copies that piece to a lane's ``to``, if it is not null, by finish().
    MORI_DEVICE_INLINE void store(char* to, uint32_t bytes) const {
        if (to != nullptr) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(internal::globalAddress(to)),
                         "r"(data(stored_ % kSpreadStages)), "r"(bytes)
                         : "memory");
        }
    }

    /// The piece needs no more stores.
    MORI_DEVICE_INLINE void release() {
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        stored_++;
    }

    /// All copies of the stream are done, and what was fetched for none has come: what these lanes release next covers them.
    MORI_DEVICE_INLINE void finish() {
        if (stageBytes_ != 0) {
            for (; stored_ < fetched_; stored_++) {
                await();
            }
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            // From the copy engine's view of memory to that of ordinary accesses, which fences order.
            asm volatile("fence.proxy.async;" ::: "memory");
        }
        warpSync();
    }

private:
    static constexpr uint32_t kLeastStageBytes = 512;
    /// Pieces that are fetched ahead of the stores once all stages have been used.
    static constexpr uint32_t kAhead = 2;
    static_assert(kSpreadStages * 8 <= spreadSharedBytes(0));

    MORI_DEVICE_INLINE uint32_t data(uint32_t stage) const { return barriers_ + spreadSharedBytes(0) + stage * stageBytes_; }

    uint32_t barriers_ = 0;    // mbarriers, which the loads' bytes complete, in the shared space; then the stages
    uint32_t stageBytes_ = 0;  // 0: everything goes through registers
    uint32_t fetched_ = 0;
    uint32_t stored_ = 0;
};

#elif defined(MORI_DEVICE_CPU)

/// The same in short pieces, which are read when they are stored.
class SpreadStream {
public:
    uint32_t stageBytes() const { return 48; }
    bool isFull() const { return fetched_ - stored_ == kSpreadStages; }
    void fetch(const char* from, uint32_t) { from_[fetched_++ % kSpreadStages] = from; }
    void await() const {}
    void store(char* to, uint32_t bytes) const {
        if (to != nullptr) {
            __builtin_memcpy(to, from_[stored_ % kSpreadStages], bytes);
        }
    }
    void release() { stored_++; }
    void finish() { warpSync(); }

private:
    const char* from_[kSpreadStages] = {};
    uint32_t fetched_ = 0, stored_ = 0;
};

#else

/// Nothing is read ahead.
class SpreadStream {
public:
    MORI_DEVICE_INLINE uint32_t stageBytes() const { return 0; }
    MORI_DEVICE_INLINE bool isFull() const { return true; }
    MORI_DEVICE_INLINE void fetch(const char*, uint32_t) {}
    MORI_DEVICE_INLINE void await() const {}
    MORI_DEVICE_INLINE void store(char*, uint32_t) const {}
    MORI_DEVICE_INLINE void release() {}
    MORI_DEVICE_INLINE void finish() { warpSync(); }
};

#endif

}  // namespace mori::device
