// SPDX-License-Identifier: MIT
/// Counts as words that tell by themselves of which dispatch they are: nobody waits for a fence, or for a flag behind them.
///
/// A word is epoch << 58 | number << 40 | signature << 24 | rows. Of a dispatch's number, which begins anew behind each exclusion of ranks (Exclude of ep/internal/gpu), it has
/// the lowest 18 bits, and the lowest 6 of how many exclusions there were. What its place has before is of two dispatches back, of fewer exclusions, or 0.
#pragma once

#include "mori/ep/plan.hpp"

namespace mori::ep {

namespace internal {

constexpr uint32_t kNumberShift = kRowsBits + kSignatureBits;
constexpr uint32_t kNumberBits = 18;

// Besides itself a word tells that its rank has come to this dispatch, and reads nothing of the one before any more: that is over since its kernel
// began. CPUs' race detectors want to see it.
#if defined(MORI_DEVICE_CPU)
constexpr Order kToldBy = Order::release;
constexpr Order kSeenBy = Order::acquire;
#else
constexpr Order kToldBy = Order::relaxed;
constexpr Order kSeenBy = Order::relaxed;
#endif

/// The rows of a word.
MORI_DEVICE_INLINE uint32_t rowsOf(uint64_t word) { return uint32_t(word & ((1u << kRowsBits) - 1)); }

/// What a dispatch's words have of its number.
MORI_DEVICE_INLINE uint64_t markOf(uint64_t number) {
    constexpr uint64_t kEpochs = (uint64_t(1) << (64 - kNumberShift - kNumberBits)) - 1;
    return (number >> kEpochShift & kEpochs) << kNumberBits | (number & ((1u << kNumberBits) - 1));
}

/// Where a rank has the word of a source for a destination, of the dispatch with the number.
MORI_DEVICE_INLINE uint64_t* wordOf(const Op& op, uint32_t in, uint64_t number, uint32_t source, uint32_t d) {
    return reinterpret_cast<uint64_t*>(memoryOf(op, in) + op.regions.counts) + (uint64_t(number % 2) * op.world + source) * op.world + d;
}

/// Publishes no rows, so that the others are told, too, that ranks were called differently: the block that publishes may find the op broken before.
/// Nobody goes on by these words alone: each waits for those of the other rank, too.
MORI_DEVICE_APART void refuseRows(const Op& op, uint64_t number, uint32_t signature) {
    MORI_DEVICE_ROLLED
    for (uint32_t i = 0; i < op.world * op.world; i++) {
        const uint32_t rank = i / op.world;
        if (!isDead(op, rank)) {
            atomicStore<Scope::system, kToldBy>(wordOf(op, rank, number, op.rank, i % op.world), (markOf(number) << kSignatureBits | signature) << kRowsBits);
        }
    }
}

/// Waits for a word of a dispatch that has this mark and signature, and returns its rows; -1: it does not come, and the op is broken.
MORI_DEVICE_APART int32_t awaitRows(const Op& op, const uint64_t* word, uint64_t number, uint32_t signature, uint32_t source) {
    const uint64_t mark = markOf(number);
    uint64_t seen = 0;
    const bool came = pollUntil(
        op.waitLimit,
        [&] {
            seen = atomicLoad<Scope::system, kSeenBy>(word);
            return seen >> kNumberShift == mark;
        },
        [&] { return isAborted(op); });
    const uint32_t its = uint32_t(seen >> kRowsBits & ((1u << kSignatureBits) - 1));
    if (came && its == signature) {
        return int32_t(rowsOf(seen));
    }
    // Told as the flag that a host would have raised.
    const uint64_t at = seen >> kNumberShift;
    const uint64_t back = (mark - at) & ((1u << kNumberBits) - 1);
    const uint64_t told = at >> kNumberBits == mark >> kNumberBits ? number - back : at >> kNumberBits << kEpochShift | (at & ((1u << kNumberBits) - 1));
    breakBy(op, flagOf(op, op.regions.published, op.rank, source), flagValue(number, signature), flagValue(told, its), source, came);
    if (came) {
        refuseRows(op, number, signature);
    }
    return -1;
}

class CountWords {
public:
    MORI_DEVICE_INLINE CountWords(const Op& op, uint64_t number, uint32_t signature)
        : op_(op), number_(number), signature_(signature), head_(markOf(number) << kSignatureBits | signature) {}

    /// One warp puts this rank's counts on everybody's board.
    MORI_DEVICE_INLINE void publish(const Plan& plan) const {
        MORI_DEVICE_ROLLED
        for (uint32_t i = laneInWarp(); i < op_.world * op_.world; i += kWarpSize) {
            const uint32_t rank = i / op_.world;
            const uint32_t d = i % op_.world;
            if (!isDead(op_, rank)) {
                atomicStore<Scope::system, kToldBy>(wordOf(op_, rank, number_, op_.rank, d), head_ << kRowsBits | uint32_t(plan.totals[d]));
            }
        }
    }

    /// Waits for the words of one destination, and calls f(source, rows), but for sources that are dead. Where one does not come, or is of another
    /// shape of rows, the op is broken and the rows are -1.
    template <class Each>
    MORI_DEVICE_INLINE void each(uint32_t d, Each f) const {
        constexpr uint32_t kAtOnce = 8;
        MORI_DEVICE_ROLLED
        for (uint32_t first = 0; first < op_.world; first += kAtOnce) {
            uint64_t seen[kAtOnce];
            MORI_DEVICE_UNROLL
            for (uint32_t i = 0; i < kAtOnce; i++) {
                seen[i] = first + i < op_.world ? look(first + i, d) : 0;
            }
            MORI_DEVICE_UNROLL
            for (uint32_t i = 0; i < kAtOnce; i++) {
                const uint32_t source = first + i;
                if (source < op_.world && !isDead(op_, source)) {
                    f(source, seen[i] >> kRowsBits == head_ ? int32_t(rowsOf(seen[i])) : awaitRows(op_, wordOf(op_, op_.rank, number_, source, d), number_, signature_, source));
                }
            }
        }
    }

    /// Rows of a word that has come.
    MORI_DEVICE_INLINE int32_t count(uint32_t source, uint32_t d) const { return int32_t(rowsOf(look(source, d))); }

private:
    MORI_DEVICE_INLINE uint64_t look(uint32_t source, uint32_t d) const { return atomicLoad<Scope::system, kSeenBy>(wordOf(op_, op_.rank, number_, source, d)); }

    const Op& op_;
    uint64_t number_;
    uint32_t signature_;
    uint64_t head_;  // of a word, above the rows
};

}  // namespace internal
}  // namespace mori::ep
