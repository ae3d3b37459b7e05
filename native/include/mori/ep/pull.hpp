// SPDX-License-Identifier: MIT
/// A warp's rows on their way from several ranks to their sums, through shared memory.
///
/// On sm_90 and up, where the launch gives the block dynamic shared memory, bulk copies bring pieces of a token's rows, all of them at once and
/// several pieces ahead of the sums, over the ends of tokens.
#pragma once

#include "mori/ep/sent.hpp"

namespace mori::ep {

namespace internal {

/// Tokens of a warp that are under way at a time.
constexpr uint32_t kPullTokens = 2;
/// Stages: pieces of a token's rows that are under way, and what they are at most, and at least.
constexpr uint32_t kMostPullStages = 8;
constexpr uint32_t kLeastPullStages = 2;
/// A piece has a chunk for each lane, or several.
constexpr uint32_t kPullLeast = kWarpSize * sizeof(Chunk);
/// Bytes of a warp's shared memory ahead of the stages: what belonged to a stream of copies before, and the barriers.
constexpr uint32_t kPullBarriers = 384;
constexpr uint32_t kPullHead = kPullBarriers + 128;
static_assert(kPullBarriers >= kSendStages * 24 && kPullBarriers >= streamSharedBytes(0));
/// Bytes of a stage, if rows are few: pieces that lanes sum four chunks of at a time.
constexpr uint32_t kPullStage = 8 * kPullLeast;

#if defined(MORI_DEVICE_BULK_COPY)

/// All lanes of a warp call each method, with the same arguments.
class PullStream {
public:
    /// Whether there is room for tokens that have up to so many rows.
    MORI_DEVICE_INLINE static bool isRoom(SharedPart mine, uint32_t rows) { return mine.bytes >= kPullHead + kLeastPullStages * stageFor(rows); }

    /// Behind isRoom.
    MORI_DEVICE_INLINE PullStream(SharedPart mine, uint32_t rows) : stageBytes_(stageFor(rows)) {
        const uint32_t room = (mine.bytes - kPullHead) / stageBytes_;
        stages_ = room < kMostPullStages ? room : kMostPullStages;
        begin_ = device::internal::streamShared + mine.begin;
        shared_ = device::internal::sharedAddress(begin_);
        if (laneInWarp() == 0) {
            for (uint32_t i = 0; i < kMostPullStages; i++) {
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

    /// Bytes of a piece of each of so many rows.
    MORI_DEVICE_INLINE uint32_t pieceOf(uint32_t rows) const {
        const uint32_t most = stageBytes_ / rows / kPullLeast;
        return (most > 4 ? 4 : most == 3 ? 2 : most) * kPullLeast;  // as lanes take their chunks
    }

    MORI_DEVICE_INLINE bool isFull() const { return under_ == stages_; }

    /// Begins to bring the bytes [at, at + bytes) of rows, multiples of 16.
    MORI_DEVICE_INLINE void load(const Terms& terms, uint32_t rows, uint32_t at, uint32_t bytes) {
        const uint32_t stage = loadAt_;
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
        loadAt_ = next(loadAt_);
        under_++;
    }

    /// Waits for the oldest piece: its rows follow each other.
    MORI_DEVICE_INLINE const char* await() {
        device::internal::barrierWait(barrier(sumAt_), sumParity_);
        return reinterpret_cast<const char*>(begin_) + kPullHead + sumAt_ * stageBytes_;
    }

    /// All lanes have read the oldest piece.
    MORI_DEVICE_INLINE void release() {
        warpSync();
        sumAt_ = next(sumAt_);
        sumParity_ ^= sumAt_ == 0 ? 1 : 0;
        under_--;
    }

private:
    MORI_DEVICE_INLINE static uint32_t stageFor(uint32_t rows) { return rows * kPullLeast > kPullStage ? rows * kPullLeast : kPullStage; }

    /// The stage behind one.
    MORI_DEVICE_INLINE uint32_t next(uint32_t stage) const { return stage + 1 == stages_ ? 0 : stage + 1; }

    MORI_DEVICE_INLINE uint32_t barrier(uint32_t stage) const { return shared_ + kPullBarriers + stage * 8; }

    unsigned char* begin_ = nullptr;
    uint32_t shared_ = 0;  // begin_, in the shared space
    uint32_t stageBytes_;
    uint32_t stages_;
    uint32_t loadAt_ = 0, sumAt_ = 0;  // stages
    uint32_t sumParity_ = 0;           // of how often the stages were gone round
    uint32_t under_ = 0;               // pieces
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

#endif

}  // namespace internal
}  // namespace mori::ep
