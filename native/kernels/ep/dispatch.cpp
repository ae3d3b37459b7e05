// SPDX-License-Identifier: MIT
// Dispatch: brings each token once to every rank that has an expert of it. The steps are those of package ep.
//
// Warps take runs of tokens that follow each other, so that the places of their rows are counted once and then only grow.
#include "mori/device/spread_stream.hpp"
#include "mori/ep/plan.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

/// What goes with a row besides its elements: weights, indices, scales and its position, as words that the lanes hold
/// while they write them to one destination after another.
class Companions {
public:
    static constexpr uint32_t kEach = 4;  // words of a lane

    MORI_DEVICE_INLINE Companions(const Op& op, const DispatchArgs& args) : op_(op), args_(args) {
        const uint32_t choices = op.topk * sizeof(float);
        weights_ = args.weights != nullptr ? choices : 0;
        indices_ = weights_ + choices;
        const bool words = args.scaleBytes % 4 == 0 && indices_ + args.scaleBytes <= kEach * kWarpSize * 4;
        scales_ = indices_ + (words ? args.scaleBytes : 0);
        apart_ = words ? 0 : args.scaleBytes;
        inWords_ = scales_ <= kEach * kWarpSize * 4;
    }

    /// Reads those of a token.
    MORI_DEVICE_INLINE void load(uint32_t token) {
        token_ = token;
        if (!inWords_) {
            return;
        }
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach; i++) {
            const uint32_t at = (i * kWarpSize + laneInWarp()) * 4;
            if (at < scales_) {
                words_[i] = *reinterpret_cast<const uint32_t*>(source(at));
            }
        }
    }

    /// Writes them beside a row. All lanes, with the same arguments.
    MORI_DEVICE_INLINE void store(uint32_t rank, uint32_t slot) const {
        char* const base = memoryOf(op_, rank);
        if (inWords_) {
            MORI_DEVICE_UNROLL
            for (uint32_t i = 0; i < kEach; i++) {
                const uint32_t at = (i * kWarpSize + laneInWarp()) * 4;
                if (at < scales_) {
                    storeOnce(base + target(at, slot), words_[i]);
                }
            }
        } else {
            for (uint32_t at = laneInWarp() * 4; at < indices_; at += kWarpSize * 4) {
                storeOnce(base + target(at, slot), *reinterpret_cast<const uint32_t*>(source(at)));
            }
        }
        if (apart_ != 0) {
            warpCopy(base + op_.regions.dispatchOutScales + uint64_t(slot) * apart_,
                     static_cast<const char*>(args_.scales) + uint64_t(token_) * apart_, apart_);
        }
        if (laneInWarp() == 0) {
            const uint32_t position = op_.rank * op_.positionStride + token_;
            storeOnce(base + op_.regions.srcPositions + uint64_t(slot) * 4, position);
        }
    }

private:
    /// Where the word at a byte of the companions is read, and where it is written.
    MORI_DEVICE_INLINE const char* source(uint32_t at) const {
        const uint64_t choices = op_.topk * sizeof(float);
        if (at < weights_) {
            return reinterpret_cast<const char*>(args_.weights) + token_ * choices + at;
        }
        if (at < indices_) {
            return reinterpret_cast<const char*>(args_.indices) + token_ * choices + (at - weights_);
        }
        return static_cast<const char*>(args_.scales) + uint64_t(token_) * args_.scaleBytes + (at - indices_);
    }

    MORI_DEVICE_INLINE uint64_t target(uint32_t at, uint32_t slot) const {
        const uint64_t choices = op_.topk * sizeof(float);
        if (at < weights_) {
            return op_.regions.dispatchOutWeights + slot * choices + at;
        }
        if (at < indices_) {
            return op_.regions.dispatchOutIndices + slot * choices + (at - weights_);
        }
        return op_.regions.dispatchOutScales + uint64_t(slot) * args_.scaleBytes + (at - indices_);
    }

    const Op& op_;
    const DispatchArgs& args_;
    uint32_t weights_, indices_, scales_;  // bytes of the companions up to the end of each
    uint32_t apart_;                       // bytes of scales that are no words, or too many
    bool inWords_;
    uint32_t token_ = 0;
    uint32_t words_[kEach] = {};
};

/// Keeps of a token what combine asks for.
MORI_DEVICE_INLINE void remember(const Op& op, const DispatchArgs& args, const Choices& choices, uint32_t token,
                                 const int32_t* slots) {
    for (uint32_t k = laneInWarp(); k < op.topk; k += kWarpSize) {
        const uint64_t at = uint64_t(token) * op.topk + k;
        const uint32_t rank = choices.rankOf(token, k);
        op.slots[at] = rank < kMostRanks ? slots[rank] : int32_t(op.world * op.maxRecv);
        if (args.weights != nullptr) {
            op.weights[at] = args.weights[at];
        }
    }
}

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
