// SPDX-License-Identifier: MIT
/// A warp's rows on their way from several ranks to their sums, through shared memory.
///
/// On sm_90 and up, where the launch gives the block dynamic shared memory, bulk copies bring pieces of a token's rows, all of them at once and
/// several pieces ahead of the sums, over the ends of tokens. Blocks of 8 warps have room for that; with few blocks twice as many warps that load
/// into registers are faster (docs/performance.md).
#pragma once

#include "mori/ep/rows.hpp"

#if defined(MORI_DEVICE_BULK_COPY)

namespace mori::ep {

namespace internal {

/// Tokens of a warp that are under way at a time.
constexpr uint32_t kPullTokens = 2;
constexpr uint32_t kPullStages = 5;
/// A piece has a chunk for each lane, or several.
constexpr uint32_t kPullLeast = kWarpSize * sizeof(Chunk);
/// Bytes of a warp's shared memory ahead of the stages: what belongs to a CopyStream, and the barriers.
constexpr uint32_t kPullHead = streamSharedBytes(0) + 128;

/// All lanes of a warp call each method, with the same arguments.
class PullStream {
public:
    /// Bytes of a piece of one row that there is room for; 0: a stream can't be.
    MORI_DEVICE_INLINE static uint32_t room() {
        return share() > kPullHead ? (share() - kPullHead) / kPullStages / kPullLeast * kPullLeast : 0;
    }

    MORI_DEVICE_INLINE PullStream() : stageBytes_(room()) {
        begin_ = device::internal::streamShared + warpInBlock() * share();
        shared_ = device::internal::sharedAddress(begin_);
        if (laneInWarp() == 0) {
            for (uint32_t i = 0; i < kPullStages; i++) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(i)) : "memory");
            }
        }
        look();  // barriers that are ready, and rows that flags have told of
    }

    /// The copy engine sees from now on what this warp sees.
    MORI_DEVICE_INLINE void look() {
        asm volatile("fence.proxy.async;" ::: "memory");
        warpSync();
    }

    /// Bytes of a piece of each of so many rows; 0 if there is no room for any.
    MORI_DEVICE_INLINE uint32_t pieceOf(uint32_t rows) const { return pieceOf(stageBytes_, rows); }
    MORI_DEVICE_INLINE static uint32_t pieceOf(uint32_t room, uint32_t rows) { return room / rows / kPullLeast * kPullLeast; }

    MORI_DEVICE_INLINE bool isFull() const { return loaded_ - summed_ == kPullStages; }

    /// Begins to bring the bytes [at, at + bytes) of rows, multiples of 16.
    MORI_DEVICE_INLINE void load(const Terms& terms, uint32_t rows, uint32_t at, uint32_t bytes) {
        const uint32_t stage = loaded_ % kPullStages;
        if (laneInWarp() == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier(stage)), "r"(rows * bytes)
                         : "memory");
        }
        warpSync();
        for (uint32_t i = laneInWarp(); i < rows; i += kWarpSize) {
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    shared_ + kPullHead + stage * stageBytes_ + i * bytes),
                "l"(device::internal::globalAddress(terms.rows[i] + at)), "r"(bytes), "r"(barrier(stage))
                : "memory");
        }
        loaded_++;
    }

    /// Waits for the oldest piece: its rows follow each other.
    MORI_DEVICE_INLINE const char* await() {
        const uint32_t stage = summed_ % kPullStages;
        device::internal::barrierWait(barrier(stage), summed_ / kPullStages % 2);
        return reinterpret_cast<const char*>(begin_) + kPullHead + stage * stageBytes_;
    }

    /// All lanes have read the oldest piece.
    MORI_DEVICE_INLINE void release() {
        warpSync();
        summed_++;
    }

private:
    /// Of a warp.
    MORI_DEVICE_INLINE static uint32_t share() {
        constexpr uint32_t kLine = 128;
        return device::internal::streamSharedSize() / warpsPerBlock() / kLine * kLine;
    }

    MORI_DEVICE_INLINE uint32_t barrier(uint32_t stage) const { return shared_ + streamSharedBytes(0) + stage * 8; }

    unsigned char* begin_ = nullptr;
    uint32_t shared_ = 0;  // begin_, in the shared space
    uint32_t stageBytes_;
    uint32_t loaded_ = 0;
    uint32_t summed_ = 0;
};

/// Writes the sums of one piece, which begins at byte ``at`` of the rows.
template <Number type>
MORI_DEVICE_INLINE void sumPiece(char* out, const char* piece, const Terms& terms, uint32_t rows, const RowShape& shape, uint32_t at, uint32_t bytes) {
    const uint32_t first = at / sizeof(Chunk), end = first + bytes / sizeof(Chunk);
    auto load = [&](uint32_t i, uint32_t chunk) { return *reinterpret_cast<const Chunk*>(piece + i * bytes + (chunk - first) * sizeof(Chunk)); };
    if (shape.weighted) {
        sumChunks<type, type, false, Factors::some>(out, terms, rows, shape, first, end, load);
    } else {
        sumChunks<type, type, false, Factors::none>(out, terms, rows, shape, first, end, load);
    }
}

}  // namespace internal
}  // namespace mori::ep

#endif
