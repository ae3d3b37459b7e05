// SPDX-License-Identifier: MIT
// Combine: brings the rows of every token back to the token's rank and sums them. The steps are those of package ep: each
// rank puts its rows where the others read them, and each token's rank pulls them.
#include "mori/ep/rows.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

struct Shared {
    Terms terms[kMostWarps];
    uint32_t word;
};

/// A run of bytes for each warp, whole lines.
MORI_DEVICE_INLINE void copyShare(char* to, const char* from, uint64_t bytes, CopyStream& stream) {
    constexpr uint64_t kLine = 128;
    const uint64_t lines = (bytes + kLine - 1) / kLine;
    const uint64_t first = lines * warpInGrid() / gridWarps() * kLine;
    const uint64_t next = lines * (warpInGrid() + 1) / gridWarps() * kLine;
    const uint64_t end = next < bytes ? next : bytes;
    if (first < end) {
        stream.copy(to + first, from + first, end - first);
    }
}

/// This rank's rows as float8, each element by itself.
MORI_DEVICE_INLINE void castRows(char* to, const char* from, uint64_t elements) {
    const uint64_t threads = uint64_t(gridBlocks()) * blockSize();
    for (uint64_t e = uint64_t(blockInGrid()) * blockSize() + threadInBlock(); e < elements; e += threads) {
        const float value = toFloat<Number::bfloat16>(loadElement<Number::bfloat16>(from + e * 2));
        storeOnce(to + e, uint8_t(fromFloat<Number::float8E4M3FN>(value, true)));
    }
}

/// This rank's rows as float8, in blocks with a scale each.
MORI_DEVICE_INLINE void quantRows(const Op& op, const CombineArgs& args, uint64_t rows) {
    char* const base = memoryOf(op, op.rank);
    const uint32_t size = (args.hidden + args.scaleBlocks - 1) / args.scaleBlocks;
    for (uint64_t i = warpInGrid(); i < rows * args.scaleBlocks; i += gridWarps()) {
        const uint64_t row = i / args.scaleBlocks;
        const uint32_t first = uint32_t(i % args.scaleBlocks) * size;
        const uint32_t left = first < args.hidden ? args.hidden - first : 0;
        const uint64_t at = row * args.hidden + first;
        float* const scale = reinterpret_cast<float*>(base + op.regions.combineInScales) + i;
        quantBlock(base + op.regions.combineIn + at, scale, static_cast<const char*>(args.input) + at * 2,
                   left < size ? left : size);
    }
}

/// Puts the rows where the others find them.
MORI_DEVICE_INLINE void fill(const Op& op, const CombineArgs& args, uint64_t rows) {
    char* const base = memoryOf(op, op.rank);
    const char* const input = static_cast<const char*>(args.input);
    CopyStream stream;
    if (args.weights != nullptr) {
        copyShare(base + op.regions.combineInWeights, reinterpret_cast<const char*>(args.weights),
                  rows * op.topk * sizeof(float), stream);
    }
    if (input != nullptr) {
        if (args.transport == uint32_t(Transport::plain)) {
            copyShare(base + op.regions.combineIn, input, rows * args.hidden * numberBytes(Number(args.type)), stream);
        } else if (args.transport == uint32_t(Transport::direct)) {
            castRows(base + op.regions.combineIn, input, rows * args.hidden);
        } else {
            quantRows(op, args, rows);
        }
    }
    stream.finish();
}

/// All threads of the block wait; false in all of them if the op is broken.
MORI_DEVICE_INLINE bool blockAwaits(const Op& op, uint64_t flags, uint64_t value, bool anyStamp, uint32_t& shared) {
    blockSync();
    if (warpInBlock() == 0) {
        const bool came = awaitFlags(op, flags, value, kEveryone, anyStamp);
        if (laneInWarp() == 0) {
            shared = came;
        }
    }
    blockSync();
    return shared != 0;
}

MORI_DEVICE_INLINE bool send(const Op& op, const CombineArgs& args, uint64_t number, uint32_t& shared) {
    const bool moves = args.input != nullptr || args.weights != nullptr;
    bool last = blockInGrid() == 0;
    if (moves) {
        // Nobody reads the rows of the last combine any more.
        if (!blockAwaits(op, op.regions.pulled, flagValue(number - 1, 0), true, shared)) {
            return false;
        }
        const int32_t rows = *(args.rows != nullptr ? args.rows : op.received);
        if (rows < 0 || uint32_t(rows) > op.maxRecv || uint32_t(rows) > args.given) {
            if (threadInBlock() == 0) {
                op.notice->rows = rows;
                breakOp(op, Fault::rows);
            }
            return false;
        }
        fill(op, args, uint64_t(rows));
        last = isLastBlock(op, 0, shared);
    }
    if (last && warpInBlock() == 0) {
        raise(op, op.regions.ready, flagValue(number, args.stamp));
    }
    return true;
}

/// Whether an earlier choice has the same row.
MORI_DEVICE_INLINE bool comesBefore(const int32_t* slots, uint32_t choice) {
    bool before = false;
    for (uint32_t k = 0; k < choice; k++) {
        before = before || slots[k] == slots[choice];
    }
    return before;
}

/// Where the rows of the token lie, in the order of ranks, and how many there are.
MORI_DEVICE_INLINE uint32_t findRows(const Op& op, const CombineArgs& args, uint32_t token, uint64_t rowBytes,
                                     Terms& terms) {
    const int32_t* const slots = (args.route != nullptr ? args.route : op.slots) + uint64_t(token) * op.topk;
    uint64_t ranks = 0;
    for (uint32_t k = 0; k < op.topk; k++) {
        const uint32_t slot = uint32_t(slots[k]);
        const uint32_t rank = slot / op.maxRecv;
        ranks |= rank < op.world ? uint64_t(1) << rank : 0;
    }
    ranks &= ~op.dead;
    warpSync();  // the terms of the token before are done with
    for (uint32_t k = laneInWarp(); k < op.topk; k += kWarpSize) {
        const uint32_t slot = uint32_t(slots[k]);
        const uint32_t rank = slot / op.maxRecv;
        if (rank >= op.world || (ranks >> rank & 1) == 0 || comesBefore(slots, k)) {
            continue;
        }
        const uint32_t place = bitCount(ranks & ((uint64_t(1) << rank) - 1));
        const uint64_t row = slot % op.maxRecv;
        const char* const base = memoryOf(op, rank);
        terms.rows[place] = base + op.regions.combineIn + row * rowBytes;
        terms.scales[place] = reinterpret_cast<const float*>(base + op.regions.combineInScales) + row * args.scaleBlocks;
        terms.weights[place] = reinterpret_cast<const float*>(base + op.regions.combineInWeights) + row * op.topk;
        if (args.weighted != 0) {
            float factor = 0;
            for (uint32_t other = 0; other < op.topk; other++) {
                if (uint32_t(slots[other]) == slot) {
                    factor = sum(factor, op.weights[uint64_t(token) * op.topk + other]);
                }
            }
            terms.factors[place] = factor;
        }
    }
    warpSync();
    return bitCount(ranks);
}

template <Number from, Number to, bool scaled>
MORI_DEVICE_INLINE void sumTokens(const Op& op, const CombineArgs& args, Terms& terms) {
    char* const base = memoryOf(op, op.rank);
    const uint32_t blocks = args.scaleBlocks != 0 ? args.scaleBlocks : 1;
    const RowShape shape{args.hidden, (args.hidden + blocks - 1) / blocks, args.weighted != 0};
    // Of few tokens several warps have one each: a warp alone waits for a peer's memory dozens of times, one after the other.
    const Parts parts(args.tokens, args.hidden * numberBytes(from));
    for (uint32_t item = warpInGrid(); item < args.tokens * parts.each; item += gridWarps()) {
        const uint32_t token = item / parts.each;
        const Part part{item % parts.each, parts.each};
        const uint32_t count = findRows(op, args, token, uint64_t(args.hidden) * numberBytes(from), terms);
        char* const out = base + op.regions.combineOut + uint64_t(token) * args.hidden * numberBytes(to);
        sumRows<from, to, scaled>(out, terms, count, shape, part);
        if (args.weights == nullptr || part.part != 0) {
            continue;
        }
        float* const weights = reinterpret_cast<float*>(base + op.regions.combineOutWeights) + uint64_t(token) * op.topk;
        for (uint32_t k = laneInWarp(); k < op.topk; k += kWarpSize) {
            float total = 0;
            for (uint32_t i = 0; i < count; i++) {
                const float weight = floatOf(loadOnce<uint32_t>(terms.weights[i] + k));
                total = i == 0 ? weight : sum(total, weight);
            }
            weights[k] = oneNaN(total);
        }
    }
}

MORI_DEVICE_INLINE void sumAll(const Op& op, const CombineArgs& args, Terms& terms) {
    constexpr Number bf16 = Number::bfloat16;
    constexpr Number fp8 = Number::float8E4M3FN;
    if (args.transport == uint32_t(Transport::direct)) {
        sumTokens<fp8, bf16, false>(op, args, terms);
    } else if (args.transport == uint32_t(Transport::blockwise)) {
        sumTokens<fp8, bf16, true>(op, args, terms);
    } else if (args.type == uint32_t(bf16)) {
        sumTokens<bf16, bf16, false>(op, args, terms);
    } else if (args.type == uint32_t(fp8)) {
        sumTokens<fp8, fp8, false>(op, args, terms);
    } else if (args.type == uint32_t(Number::float32)) {
        sumTokens<Number::float32, Number::float32, false>(op, args, terms);
    } else {
        sumTokens<Number::float8E4M3FNUZ, Number::float8E4M3FNUZ, false>(op, args, terms);
    }
}

MORI_DEVICE_INLINE void receive(const Op& op, const CombineArgs& args, uint64_t number, Shared& shared) {
    if (!blockAwaits(op, op.regions.ready, flagValue(number, args.stamp), false, shared.word)) {
        return;
    }
    sumAll(op, args, shared.terms[warpInBlock()]);
    if (!isLastBlock(op, 1, shared.word) || warpInBlock() != 0) {
        return;
    }
    const uint64_t pulled = flagValue(number, 0);
    raise(op, op.regions.pulled, pulled);
    if (laneInWarp() == 0) {
        op.progress->combines = number;
        if (args.clearReceived != 0) {
            *op.received = 0;
        }
    }
    if (args.input == nullptr) {  // the caller may fill CombineIn anew as soon as this ends
        awaitFlags(op, op.regions.pulled, pulled, kEveryone, true);
    }
}

}  // namespace
}  // namespace mori::ep

/// Blocks of up to kMostWarps warps.
extern "C" MORI_DEVICE_KERNEL(512) void mori_ep_combine(const mori::ep::CombineArgs args) {
    using namespace mori::ep;
    const Op& op = *args.op;
    MORI_DEVICE_SHARED(Shared, shared);
    if (isBroken(op)) {
        return;
    }
    const uint64_t number = op.progress->combines + 1;
    if ((args.phases & kSend) != 0 && !send(op, args, number, shared.word)) {
        return;
    }
    if ((args.phases & kRecv) != 0) {
        receive(op, args, number, shared);
    }
}
