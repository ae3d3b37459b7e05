// SPDX-License-Identifier: MIT
/// Counts as words that tell by themselves of which dispatch they are: nobody waits for a fence, or for a flag behind them.
///
/// A word is number << 40 | stamp << 24 | rows, of the lowest 24 bits of the dispatch's number. Its place has another dispatch's before, two back, or 0.
#pragma once

#include "mori/ep/plan.hpp"

namespace mori::ep {

namespace internal {

constexpr uint32_t kRowsBits = 24;
constexpr uint32_t kNumberShift = kRowsBits + kStampBits;
constexpr uint64_t kNumberMask = (uint64_t(1) << (64 - kNumberShift)) - 1;

// Besides itself a word tells that its rank has come to this dispatch, and reads nothing of the one before any more: that is over since its kernel
// began. CPUs' race detectors want to see it.
#if defined(MORI_DEVICE_CPU)
constexpr Order kToldBy = Order::release;
constexpr Order kSeenBy = Order::acquire;
#else
constexpr Order kToldBy = Order::relaxed;
constexpr Order kSeenBy = Order::relaxed;
#endif

class CountWords {
public:
    MORI_DEVICE_INLINE CountWords(const Op& op, uint64_t number, uint32_t stamp) : op_(op), number_(number), stamp_(stamp) {}

    /// One warp puts this rank's counts on everybody's board.
    MORI_DEVICE_INLINE void publish(const Plan& plan) const {
        for (uint32_t i = laneInWarp(); i < op_.world * op_.world; i += kWarpSize) {
            const uint32_t rank = i / op_.world;
            const uint32_t d = i % op_.world;
            if (!isDead(op_, rank)) {
                const uint64_t word = (number_ & kNumberMask) << kNumberShift | uint64_t(stamp_) << kRowsBits | uint32_t(plan.totals[d]);
                atomicStore<Scope::system, kToldBy>(place(rank, op_.rank, d), word);
            }
        }
    }

    /// Waits for the words of one destination, and calls f(source, rows). Sources that are dead have none. Where one does not come, or is of another
    /// shape of rows, the op is broken and the rows are -1.
    template <class Each>
    MORI_DEVICE_INLINE void each(uint32_t d, Each f) const {
        constexpr uint32_t kAtOnce = 8;
        for (uint32_t first = 0; first < op_.world; first += kAtOnce) {
            uint64_t seen[kAtOnce];
            MORI_DEVICE_UNROLL
            for (uint32_t i = 0; i < kAtOnce; i++) {
                seen[i] = first + i < op_.world ? look(first + i, d) : 0;
            }
            MORI_DEVICE_UNROLL
            for (uint32_t i = 0; i < kAtOnce; i++) {
                if (first + i < op_.world) {
                    f(first + i, isDead(op_, first + i) ? 0 : await(first + i, d, seen[i]));
                }
            }
        }
    }

    /// Rows of a word that has come.
    MORI_DEVICE_INLINE int32_t count(uint32_t source, uint32_t d) const { return rows(look(source, d)); }

private:
    MORI_DEVICE_INLINE uint64_t* place(uint32_t in, uint32_t source, uint32_t d) const {
        return reinterpret_cast<uint64_t*>(memoryOf(op_, in) + op_.regions.counts) + (uint64_t(number_ % 2) * op_.world + source) * op_.world + d;
    }

    MORI_DEVICE_INLINE uint64_t look(uint32_t source, uint32_t d) const { return atomicLoad<Scope::system, kSeenBy>(place(op_.rank, source, d)); }
    MORI_DEVICE_INLINE bool isOfThis(uint64_t word) const { return (word >> kNumberShift) == (number_ & kNumberMask); }
    MORI_DEVICE_INLINE int32_t rows(uint64_t word) const { return int32_t(word & ((1u << kRowsBits) - 1)); }

    MORI_DEVICE_INLINE int32_t await(uint32_t source, uint32_t d, uint64_t seen) const {
        if (isOfThis(seen) && (seen >> kRowsBits & ((1u << kStampBits) - 1)) == stamp_) {
            return rows(seen);
        }
        return awaitSlowly(source, d);
    }

    MORI_DEVICE_INLINE int32_t awaitSlowly(uint32_t source, uint32_t d) const {
        uint64_t seen = 0;
        const bool came = pollUntil(op_.waitLimit, [&] { return isOfThis(seen = look(source, d)); });
        const uint32_t its = uint32_t(seen >> kRowsBits & ((1u << kStampBits) - 1));
        if (came && its == stamp_) {
            return rows(seen);
        }
        // Told as the flag that a host would have raised.
        const uint64_t at = seen == 0 ? 0 : number_ - ((number_ - (seen >> kNumberShift)) & kNumberMask);
        reportWait(&op_.notice->wait, flagOf(op_, op_.regions.published, op_.rank, source), flagValue(number_, stamp_), flagValue(at, its), op_.rank, source);
        breakOp(op_, came ? Fault::mismatch : Fault::timeout);
        return -1;
    }

    const Op& op_;
    uint64_t number_;
    uint32_t stamp_;
};

}  // namespace internal
}  // namespace mori::ep
