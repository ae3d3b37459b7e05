// SPDX-License-Identifier: MIT
/// What a warp reads of its tokens ahead of where it goes: a load takes up to a microsecond, and while ranks exchange their counts there is time.
#pragma once

#include "mori/device/spread_stream.hpp"
#include "mori/ep/plan.hpp"

namespace mori::ep {

namespace internal {

/// The rows of a run, each of which goes to several places.
class RowsAhead {
public:
    /// odd: the addresses where rows go, or'd, and what these may differ by.
    MORI_DEVICE_INLINE RowsAhead(SpreadStream& stream, const Run& run, const DispatchArgs& args, uint64_t odd)
        : stream_(stream), row_(static_cast<const char*>(args.input) + run.first * args.rowBytes + run.from), stride_(args.rowBytes), bytes_(run.bytes),
          rows_(run.end - run.first) {
        if ((odd | uint64_t(row_) | stride_ | bytes_) % sizeof(Chunk) == 0) {
            piece_ = stream.stageBytes();
            next_ = row_;
        }
    }

    /// Begins to read as much as there is room for.
    MORI_DEVICE_INLINE void fetch() {
        while (piece_ != 0 && rows_ != 0 && !stream_.isFull()) {
            const uint64_t left = bytes_ - at_;
            const uint32_t now = uint32_t(left < piece_ ? left : piece_);
            stream_.fetch(next_ + at_, now);
            at_ += now;
            if (at_ == bytes_) {
                at_ = 0;
                next_ += stride_;
                rows_--;
            }
        }
    }

    /// Copies the next row to every lane's places that are not null, now or by the stream's finish(). It has one for each rank of its own.
    MORI_DEVICE_INLINE void send(char* const (&to)[PerRank::kEach]) {
        if (piece_ == 0) {
            MORI_DEVICE_ROLLED
            for (uint32_t i = 0; i < PerRank::kEach; i++) {
                spread(i == 0 ? to[0] : to[PerRank::kEach - 1], row_, bytes_);
            }
            row_ += stride_;
            return;
        }
        for (uint64_t at = 0; at < bytes_; at += piece_) {
            const uint32_t now = uint32_t(bytes_ - at < piece_ ? bytes_ - at : piece_);
            stream_.await();
            MORI_DEVICE_UNROLL
            for (char* const place : to) {
                stream_.store(place == nullptr ? nullptr : place + at, now);
            }
            stream_.release();
            fetch();
        }
    }

private:
    SpreadStream& stream_;
    const char* row_;  // the next to send, where nothing is read ahead
    const char* next_ = nullptr;  // the row that is being fetched
    uint64_t stride_, bytes_;
    uint64_t at_ = 0;  // bytes of it that were
    uint32_t rows_;    // that are not fetched
    uint32_t piece_ = 0;
};

/// To which ranks the tokens of a run go. Each lane reads the choices of one.
class RanksAhead {
public:
    MORI_DEVICE_INLINE RanksAhead(const Choices& choices, const Run& run) : choices_(choices), end_(run.end) {}

    /// Reads those of tokens from one on.
    MORI_DEVICE_INLINE void load(uint32_t begin) {
        begin_ = begin;
        const uint32_t token = begin + laneInWarp();
        mine_ = token < end_ ? choices_.ranks(token) : 0;
    }

    /// Tokens are asked for in their order, behind load().
    MORI_DEVICE_INLINE uint64_t of(uint32_t token) {
        if (token - begin_ >= kWarpSize) {
            load(token);
        }
        return warpBroadcast(mine_, token - begin_);
    }

private:
    const Choices& choices_;
    uint32_t begin_ = 0, end_;
    uint64_t mine_ = 0;
};

}  // namespace internal
}  // namespace mori::ep
