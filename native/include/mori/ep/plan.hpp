// SPDX-License-Identifier: MIT
/// Which rows a rank's tokens become, and where they lie at their destinations: Plan and CountMatrix of ep/internal/plan, on
/// the device. Each block computes it by itself, which costs less than sharing it.
#pragma once

#include "mori/ep/call.hpp"

namespace mori::ep {

namespace internal {

/// Cells of the table of prefixes: groups of tokens x ranks.
constexpr uint32_t kPlanCells = 4096;

/// In the memory that a block shares.
struct Plan {
    int32_t before[kPlanCells];                   // rows of a group's warp ahead of the group, by group and rank
    int32_t warpBefore[kMostWarps * kMostRanks];  // rows of the warps ahead, by warp and rank
    int32_t totals[kMostRanks];                   // this rank's rows to each
    int32_t bases[kMostRanks];                    // and the first slot there
    int32_t columns[kMostRanks];                  // rows that come to each rank, without a cap
    uint64_t admitted;                            // a bit for each source whose rows go
    uint32_t sends;                               // this rank was admitted
    uint32_t goes;                                // nothing has gone wrong
    uint32_t last;                                // for isLastBlock
};

/// Tells the ranks of the choices of tokens: of experts, or of the slots of a routing map.
class Choices {
public:
    MORI_DEVICE_INLINE Choices(const Op& op, const DispatchArgs& args)
        : values_(reinterpret_cast<const uint32_t*>(args.route != nullptr ? args.route : args.indices)),
          topk_(op.topk),
          by_(args.route != nullptr ? op.maxRecv : op.expertsPerRank),
          limit_(args.route != nullptr ? op.world * op.maxRecv : op.experts),
          dead_(op.dead),
          magic_(~0u / by_),
          whole_(topk_ % 4 == 0 && uint64_t(values_) % sizeof(Chunk) == 0) {}

    /// A bit for each rank that the token goes to.
    MORI_DEVICE_INLINE uint64_t ranks(uint32_t token) const {
        const uint32_t* const choices = values_ + uint64_t(token) * topk_;
        uint64_t ranks = 0;
        uint32_t k = 0;
        if (whole_) {
            MORI_DEVICE_ROLLED
            for (; k + 8 <= topk_; k += 8) {  // both loads are under way at once
                const Chunk low = *reinterpret_cast<const Chunk*>(choices + k);
                const Chunk high = *reinterpret_cast<const Chunk*>(choices + k + 4);
                MORI_DEVICE_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    ranks |= bit(low.words[i]) | bit(high.words[i]);
                }
            }
        }
        MORI_DEVICE_ROLLED
        for (; k < topk_; k++) {
            ranks |= bit(choices[k]);
        }
        return ranks & ~dead_;
    }

    /// One choice of a token.
    MORI_DEVICE_INLINE uint32_t chosen(uint32_t token, uint32_t choice) const { return values_[uint64_t(token) * topk_ + choice]; }

    /// The rank of a choice; kMostRanks if it goes nowhere.
    MORI_DEVICE_INLINE uint32_t rankOf(uint32_t value) const {
        const uint32_t found = value < limit_ ? rank(value) : kMostRanks;
        return found < kMostRanks && (dead_ >> found & 1) == 0 ? found : kMostRanks;
    }

private:
    MORI_DEVICE_INLINE uint64_t bit(uint32_t value) const { return value < limit_ ? uint64_t(1) << rank(value) : 0; }

    MORI_DEVICE_INLINE uint32_t rank(uint32_t value) const {
        const uint32_t found = uint32_t(uint64_t(value) * magic_ >> 32);  // value / by_, or one less
        return found + ((found + 1) * by_ <= value ? 1 : 0);
    }

    const uint32_t* values_;
    uint32_t topk_, by_, limit_;
    uint64_t dead_;
    uint32_t magic_;
    bool whole_;  // the choices of a token lie at aligned addresses
};

/// What a lane knows of the ranks that are its own: lane, lane + kWarpSize and so on.
struct PerRank {
    static constexpr uint32_t kEach = kMostRanks / kWarpSize;
    int32_t of[kEach] = {};

    /// Adds one for each lane whose bit for the rank is set.
    MORI_DEVICE_INLINE void count(uint64_t ranks, uint32_t world) {
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach; i++) {
            MORI_DEVICE_ROLLED
            for (uint32_t lane = 0; lane < kWarpSize && i * kWarpSize + lane < world; lane++) {
                const int32_t rows = int32_t(bitCount(warpBallot((ranks >> (i * kWarpSize + lane) & 1) != 0)));
                of[i] += laneInWarp() == lane ? rows : 0;
            }
        }
    }
};

/// Groups of tokens are one warp's work at a time.
struct Groups {
    uint32_t span, count, each;  // tokens of a group; groups; groups of a warp

    MORI_DEVICE_INLINE Groups(uint32_t tokens, uint32_t world) {
        span = kWarpSize;
        while ((tokens + span - 1) / span * world > kPlanCells) {
            span *= 2;
        }
        count = (tokens + span - 1) / span;
        each = (count + warpsPerBlock() - 1) / warpsPerBlock();
    }
};

/// Counts the rows of [first, end), which a group holds.
MORI_DEVICE_INLINE void countTokens(const Choices& choices, uint32_t first, uint32_t end, uint32_t world, PerRank& rows) {
    MORI_DEVICE_ROLLED
    for (uint32_t at = first; at < end; at += kWarpSize) {
        const uint32_t token = at + laneInWarp();
        rows.count(token < end ? choices.ranks(token) : 0, world);
    }
}

/// All threads of the block: plan.totals, and what firstPlaces needs.
MORI_DEVICE_INLINE void countRows(const Op& op, const Choices& choices, uint32_t tokens, Plan& plan) {
    const Groups groups(tokens, op.world);
    PerRank rows;
    const uint32_t first = warpInBlock() * groups.each;
    for (uint32_t group = first; group < first + groups.each && group < groups.count; group++) {
        for (uint32_t i = 0; i < PerRank::kEach; i++) {
            const uint32_t rank = i * kWarpSize + laneInWarp();
            if (rank < op.world) {
                plan.before[group * op.world + rank] = rows.of[i];
            }
        }
        const uint32_t begin = group * groups.span;
        countTokens(choices, begin, begin + groups.span < tokens ? begin + groups.span : tokens, op.world, rows);
    }
    for (uint32_t i = 0; i < PerRank::kEach; i++) {
        const uint32_t rank = i * kWarpSize + laneInWarp();
        if (rank < op.world) {
            plan.warpBefore[warpInBlock() * op.world + rank] = rows.of[i];
        }
    }
    blockSync();
    for (uint32_t rank = threadInBlock(); rank < op.world; rank += blockSize()) {
        int32_t sum = 0;
        for (uint32_t warp = 0; warp < warpsPerBlock(); warp++) {
            const int32_t own = plan.warpBefore[warp * op.world + rank];
            plan.warpBefore[warp * op.world + rank] = sum;
            sum += own;
        }
        plan.totals[rank] = sum;
    }
    blockSync();
}

/// The places in the blocks of this rank's rows at which the rows of a token begin. One warp.
MORI_DEVICE_INLINE PerRank firstPlaces(const Op& op, const Choices& choices, uint32_t tokens, uint32_t token,
                                       const Plan& plan) {
    PerRank rows;
    if (token >= tokens) {
        return rows;
    }
    const Groups groups(tokens, op.world);
    const uint32_t group = token / groups.span;
    for (uint32_t i = 0; i < PerRank::kEach; i++) {
        const uint32_t rank = i * kWarpSize + laneInWarp();
        if (rank < op.world) {
            rows.of[i] = plan.before[group * op.world + rank] + plan.warpBefore[group / groups.each * op.world + rank];
        }
    }
    countTokens(choices, group * groups.span, token, op.world, rows);
    return rows;
}

/// The row of counts of a source on a rank's board, for the dispatch with the number, where flags tell when it is whole.
MORI_DEVICE_INLINE int32_t* countsOf(const Op& op, uint32_t in, uint64_t number, uint32_t source) {
    return reinterpret_cast<int32_t*>(memoryOf(op, in) + op.regions.counts) +
           (uint64_t(number % 2) * op.world + source) * op.world;
}

/// Whether a count can be, of the rows of one source for one rank.
MORI_DEVICE_INLINE bool canBe(const Op& op, int32_t count) { return count >= 0 && uint32_t(count) <= op.maxTokens; }

/// The board of counts, when all ranks have published. One destination's are looked at at a time, of one source after the other.
class CountsBehindFlags {
public:
    MORI_DEVICE_INLINE CountsBehindFlags(const Op& op, uint64_t number) : op_(op), number_(number) {}

    MORI_DEVICE_INLINE int32_t count(uint32_t source, uint32_t d) const { return countsOf(op_, op_.rank, number_, source)[d]; }

    /// Calls f(source, count), but for sources that are dead.
    template <class Each>
    MORI_DEVICE_INLINE void each(uint32_t d, Each f) const {
        for (uint32_t source = 0; source < op_.world; source++) {
            if (!isDead(op_, source)) {
                f(source, count(source, d));
            }
        }
    }

private:
    const Op& op_;
    uint64_t number_;
};

/// One thread admits the sources in the order of ranks, each with all its rows or none.
template <class Counts>
MORI_DEVICE_NOINLINE void admitInTurn(const Op& op, uint64_t number, const Counts& counts, Plan& plan) {
    int32_t* const totals = plan.totals;  // of this rank's rows nobody asks any more
    for (uint32_t d = 0; d < op.world; d++) {
        totals[d] = 0;
    }
    for (uint32_t source = 0; source < op.world; source++) {
        bool room = !isDead(op, source);
        for (uint32_t d = 0; d < op.world && room; d++) {
            const int32_t row = counts.count(source, d);
            room = uint32_t(totals[d] + row) <= op.maxRecv;
            if (!room && source == op.rank && blockInGrid() == 0) {
                int32_t* const told = op.progress->overflow;
                told[1] = int32_t(d), told[2] = row, told[3] = totals[d], told[0] = int32_t(source);
                for (uint32_t i = 0; i < 3; i++) {
                    op.notice->overflow[i] = told[1 + i];
                }
                atomicStore<Scope::system, Order::release>(&op.notice->overflowed, number);
            }
        }
        if (source == op.rank) {
            plan.sends = room;
        }
        plan.admitted &= ~(uint64_t(!room) << source);
        for (uint32_t d = 0; d < op.world; d++) {
            if (source == op.rank) {
                plan.bases[d] = totals[d];
            }
            totals[d] += room ? counts.count(source, d) : 0;
        }
    }
}

/// All threads of the block: plan.bases, plan.sends, and in plan.totals[op.rank] how many rows this rank receives. False, in all threads: the op is
/// broken, or a rank published what cannot be.
template <class Counts>
MORI_DEVICE_INLINE bool admit(const Op& op, uint64_t number, const Counts& counts, Plan& plan) {
    const bool capped = op.maxRecv < op.world * op.maxTokens;
    if (threadInBlock() == 0) {
        plan.sends = 1;
        plan.goes = 1;
        plan.admitted = kEveryone;
    }
    blockSync();
    for (uint32_t d = threadInBlock(); d < op.world; d += blockSize()) {
        int32_t base = 0;
        int32_t total = 0;
        counts.each(d, [&](uint32_t source, int32_t count) {
            if (!canBe(op, count)) {
                atomicStore<Scope::block, Order::relaxed>(&plan.goes, 0u);
            }
            base += source < op.rank ? count : 0;
            total += count;
        });
        plan.bases[d] = base;
        plan.columns[d] = total;
        if (d == op.rank) {
            plan.totals[d] = total;
        }
    }
    blockSync();
    if (plan.goes == 0) {
        breakOp(op, Fault::counts);
        return false;
    }
    if (capped) {
        if (threadInBlock() == 0) {
            admitInTurn(op, number, counts, plan);
        }
        blockSync();
    }
    return true;
}

}  // namespace internal
}  // namespace mori::ep
