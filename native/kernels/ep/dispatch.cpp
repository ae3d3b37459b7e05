// SPDX-License-Identifier: MIT
// Dispatch: brings each token once to every rank that has an expert of it. The steps are those of package ep.
//
// Warps take runs of tokens that follow each other, so that the places of their rows are counted once and then only grow.
#include "mori/device/spread_stream.hpp"
#include "mori/ep/companions.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

/// A warp sends its part of the tokens of its run. slots is memory of the warp, a word for each rank.
MORI_DEVICE_INLINE void sendRun(const Op& op, const DispatchArgs& args, const Choices& choices, const Plan& plan,
                                uint32_t first, uint32_t end, Part part, int32_t* slots, SpreadStream& stream) {
    constexpr uint32_t kLine = 128;
    const uint32_t lines = uint32_t((args.rowBytes + kLine - 1) / kLine);
    const uint64_t from = uint64_t(part.begin(lines)) * kLine;
    const uint64_t upTo = uint64_t(part.end(lines)) * kLine;
    const uint64_t bytes = (upTo < args.rowBytes ? upTo : args.rowBytes) - from;
    PerRank place = firstPlaces(op, choices, args.tokens, first, plan);
    Companions companions(op, args);
    for (uint32_t token = first; token < end; token++) {
        const uint64_t ranks = plan.sends != 0 ? choices.ranks(token) : 0;
        const char* const row = static_cast<const char*>(args.input) + token * args.rowBytes + from;
        if (part.part == 0) {
            companions.load(token);
        }
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < PerRank::kEach; i++) {
            const uint32_t rank = i * kWarpSize + laneInWarp();
            if (i * kWarpSize >= op.world) {
                break;
            }
            const bool goes = rank < op.world && (ranks >> rank & 1) != 0;
            char* to = nullptr;
            if (goes) {
                const uint32_t slot = uint32_t(plan.bases[rank] + place.of[i]);
                slots[rank] = int32_t(rank * op.maxRecv + slot);
                to = memoryOf(op, rank) + op.regions.dispatchOut + slot * args.rowBytes + from;
                place.of[i]++;
            } else if (rank < op.world) {
                slots[rank] = int32_t(op.world * op.maxRecv);
            }
            if (warpBallot(goes) != 0) {
                stream.copy(to, row, bytes);
            }
        }
        if (part.part != 0) {
            continue;
        }
        warpSync();
        for (uint64_t left = ranks; left != 0; left &= left - 1) {
            const uint32_t rank = lowestBit(left);
            companions.store(rank, uint32_t(slots[rank]) - rank * op.maxRecv);
        }
        remember(op, args, choices, token, slots);
        warpSync();
    }
}

struct Shared {
    Plan plan;
    int32_t slots[kMostWarps * kMostRanks];
};

MORI_DEVICE_INLINE bool send(const Op& op, const DispatchArgs& args, uint64_t number, Shared& shared) {
    Plan& plan = shared.plan;
    const Choices choices(op, args);
    SpreadStream stream;
    countRows(op, choices, args.tokens, plan);
    if (blockInGrid() == 0 && warpInBlock() == 0) {
        publish(op, plan, number, args.stamp);
    }
    if (warpInBlock() == 0) {
        const bool came = awaitFlags(op, op.regions.published, flagValue(number, args.stamp), kEveryone, false);
        if (laneInWarp() == 0) {
            plan.goes = came;
        }
    }
    blockSync();
    const bool published = plan.goes != 0;
    blockSync();
    if (!published || !admit(op, number, plan)) {
        return false;
    }
    const uint64_t tokens = args.tokens;
    uint32_t first = uint32_t(tokens * warpInGrid() / gridWarps());
    uint32_t end = uint32_t(tokens * (warpInGrid() + 1) / gridWarps());
    Part part{0, 1};
    const Parts parts(args.tokens, args.rowBytes);
    if (parts.each > 1) {  // of few tokens several warps have one each
        first = warpInGrid() / parts.each;
        end = first < args.tokens ? first + 1 : first;
        part = {warpInGrid() % parts.each, parts.each};
    }
    if (first < end) {
        sendRun(op, args, choices, plan, first, end, part, shared.slots + warpInBlock() * kMostRanks, stream);
    }
    stream.finish();
    return true;
}

/// How many rows came, by the counts that all ranks published.
MORI_DEVICE_INLINE void receive(const Op& op, const DispatchArgs& args, uint64_t number) {
    if (!awaitFlags(op, op.regions.arrived, flagValue(number, args.stamp), kEveryone, false)) {
        return;
    }
    if (laneInWarp() == 0) {
        *op.received = atomicLoad<Scope::device, Order::relaxed>(&op.progress->incoming);
    }
}

}  // namespace
}  // namespace mori::ep

/// Blocks of up to kMostWarps warps; a launch of kRecv alone is one block.
extern "C" MORI_DEVICE_KERNEL(512) void mori_ep_dispatch(const mori::ep::DispatchArgs args) {
    using namespace mori::ep;
    const Op& op = *args.op;
    MORI_DEVICE_SHARED(Shared, shared);
    Progress& progress = *op.progress;
    bool last = blockInGrid() == 0;
    if (isBroken(op)) {
        return;
    }
    uint64_t number = progress.dispatches;
    if ((args.phases & kSend) != 0) {
        number++;
        if (!send(op, args, number, shared)) {
            return;
        }
        last = isLastBlock(op, 0, shared.plan.last);
        if (last && warpInBlock() == 0) {
            raise(op, op.regions.arrived, flagValue(number, args.stamp));
            if (laneInWarp() == 0) {
                progress.dispatches = number;
                progress.tokens = args.tokens;
                progress.incoming = shared.plan.totals[op.rank];
                if (shared.plan.sends != 0) {
                    progress.overflow[0] = -1;
                }
            }
            warpSync();
        }
    }
    if ((args.phases & kRecv) != 0 && last && warpInBlock() == 0) {
        receive(op, args, number);
    }
}
