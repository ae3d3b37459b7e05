// SPDX-License-Identifier: MIT
// Dispatch: brings each token once to every rank that has an expert of it. The steps are those of package ep.
//
// Warps take runs of tokens that follow each other, so that the places of their rows are counted once and then only grow.
#include "mori/ep/ahead.hpp"
#include "mori/ep/companions.hpp"
#include "mori/ep/words.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

struct Shared {
    Op op;
    Plan plan;
    int32_t slots[kMostWarps * kMostRanks];
};

/// A warp's tokens, and what it has read of them.
struct Mine {
    Run run;
    RowsAhead rows;
    RanksAhead ranks;
    Companions companions;
    Kept kept;

    MORI_DEVICE_INLINE Mine(const Op& op, const DispatchArgs& args, const Choices& choices, SpreadStream& stream)
        : run(args.tokens, args.rowBytes), rows(stream, run, args, targets(op)), ranks(choices, run), companions(op, args), kept(op, args, choices) {
        rows.fetch();
        load(run.first);
        ranks.load(run.first);
    }

    /// Reads what goes with a token, if that is this warp's part, and if there is such a token.
    MORI_DEVICE_INLINE void load(uint32_t token) {
        if (run.part.part == 0 && token < run.end) {
            companions.load(token);
            kept.load(token);
        }
    }

private:
    MORI_DEVICE_INLINE static uint64_t targets(const Op& op) {
        uint64_t all = op.regions.dispatchOut;
        MORI_DEVICE_ROLLED
        for (uint32_t rank = 0; rank < op.world; rank++) {
            all |= op.bases[rank];
        }
        return all;
    }
};

/// A warp sends its part of the tokens of its run, whose rows begin at the places. slots is memory of the warp, a word for each rank.
MORI_DEVICE_INLINE void sendRun(const Op& op, uint64_t rowBytes, const Plan& plan, Mine& mine, PerRank& place, int32_t* slots) {
    for (uint32_t token = mine.run.first; token < mine.run.end; token++) {
        const uint64_t ranks = plan.sends != 0 ? mine.ranks.of(token) : 0;
        char* to[PerRank::kEach] = {};
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < PerRank::kEach; i++) {
            const uint32_t rank = i * kWarpSize + laneInWarp();
            if (rank >= op.world) {
                continue;
            }
            slots[rank] = int32_t(op.world * op.maxRecv);
            if ((ranks >> rank & 1) != 0) {
                const uint32_t slot = uint32_t(plan.bases[rank] + place.of[i]);
                slots[rank] = int32_t(rank * op.maxRecv + slot);
                to[i] = memoryOf(op, rank) + op.regions.dispatchOut + slot * rowBytes + mine.run.from;
                place.of[i]++;
            }
        }
        mine.rows.send(to);
        if (mine.run.part.part != 0) {
            continue;
        }
        warpSync();
        for (uint64_t left = ranks; left != 0; left &= left - 1) {
            const uint32_t rank = lowestBit(left);
            mine.companions.store(rank, uint32_t(slots[rank]) - rank * op.maxRecv);
        }
        mine.kept.store(slots);
        mine.load(token + 1);
        warpSync();
    }
}

MORI_DEVICE_INLINE bool send(const Op& op, const DispatchArgs& args, uint64_t number, Shared& shared) {
    Plan& plan = shared.plan;
    const Choices choices(op, args);
    countRows(op, choices, args.tokens, plan);
    const CountWords counts(op, number, args.signature);
    if (blockInGrid() == 0 && warpInBlock() == 0) {
        counts.publish(plan);
    }
    SpreadStream stream;
    Mine mine(op, args, choices, stream);
    PerRank place = firstPlaces(op, choices, args.tokens, mine.run.first, plan);
    const bool admitted = admit(op, number, counts, plan);
    if (admitted) {
        sendRun(op, args.rowBytes, plan, mine, place, shared.slots + warpInBlock() * kMostRanks);
    }
    stream.finish();
    return admitted;
}

MORI_DEVICE_INLINE void dispatch(const DispatchArgs& args, Shared& shared) {
    if (!bring(args.op, shared.op, shared.plan.last)) {
        return;
    }
    const Op& op = shared.op;
    Progress& progress = *op.progress;
    bool last = blockInGrid() == 0;
    uint64_t number = progress.dispatches;
    if ((args.phases & kSend) != 0) {
        number++;
        if (!send(op, args, number, shared)) {
            return;
        }
        last = isLastBlock<Scope::system>(op, 0, shared.plan.last);
        if (last && threadInBlock() == 0) {
            raise(op, op.regions.arrived, flagValue(number, args.signature));
            progress.dispatches = number;
            progress.tokens = args.tokens;
            progress.incoming = shared.plan.totals[op.rank];
            uint32_t most = 0;
            MORI_DEVICE_ROLLED
            for (uint32_t rank = 0; rank < op.world; rank++) {
                const uint32_t rows = uint32_t(shared.plan.columns[rank]);
                most = rows > most ? rows : most;
            }
            progress.most = most;
            if (shared.plan.sends != 0) {
                progress.overflow[0] = -1;
            }
        }
    }
    // How many rows came, by the counts that all ranks published.
    if ((args.phases & kRecv) != 0 && last && warpInBlock() == 0 && awaitFlags(op, op.regions.arrived, flagValue(number, args.signature), kEveryone, false) &&
        laneInWarp() == 0) {
        *op.received = progress.incoming;
    }
}

}  // namespace
}  // namespace mori::ep

/// Blocks of up to kMostThreads; a launch of kRecv alone is one block.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_dispatch(const mori::ep::DispatchArgs args) {
    MORI_DEVICE_SHARED(mori::ep::Shared, shared);
    mori::ep::dispatch(args, shared);
}
