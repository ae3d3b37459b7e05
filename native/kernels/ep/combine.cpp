// SPDX-License-Identifier: MIT
// Combine: brings the rows of every token back to the token's rank and sums them. The steps are those of package ep: each
// rank puts its rows where the others read them, and each token's rank pulls them.
#include "mori/ep/pull.hpp"

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

/// Where the rows of the token lie, in the order of ranks, and how many there are. Each lane has a choice in each group.
MORI_DEVICE_INLINE uint32_t findRows(const Op& op, const CombineArgs& args, uint32_t token, uint64_t rowBytes,
                                     Terms& terms) {
    constexpr uint32_t kMostChoices = 64;
    constexpr uint32_t kGroups = (kMostChoices + kWarpSize - 1) / kWarpSize;
    const uint64_t first = uint64_t(token) * op.topk;
    const int32_t* const slots = (args.route != nullptr ? args.route : op.slots) + first;
    uint32_t slot[kGroups] = {}, rank[kGroups] = {}, weight[kGroups] = {};
    MORI_DEVICE_UNROLL
    for (uint32_t g = 0; g < kGroups; g++) {
        const uint32_t k = g * kWarpSize + laneInWarp();
        rank[g] = kMostRanks;
        if (k < op.topk) {
            slot[g] = uint32_t(slots[k]);
            const uint32_t of = slot[g] / op.maxRecv;
            rank[g] = of < op.world && !isDead(op, of) ? of : kMostRanks;
            weight[g] = args.weighted != 0 ? bitsOf(op.weights[first + k]) : 0;
        }
    }
    uint64_t ranks = 0;
    bool again[kGroups] = {};  // an earlier choice has the same row
    float factor[kGroups] = {};
    MORI_DEVICE_UNROLL
    for (uint32_t g = 0; g < kGroups; g++) {
        for (uint32_t lane = 0; lane < kWarpSize && g * kWarpSize + lane < op.topk; lane++) {
            const uint32_t theirs = uint32_t(warpBroadcast(rank[g], lane));
            const uint32_t at = uint32_t(warpBroadcast(slot[g], lane));
            const float its = floatOf(uint32_t(warpBroadcast(weight[g], lane)));
            ranks |= theirs < kMostRanks ? uint64_t(1) << theirs : 0;
            MORI_DEVICE_UNROLL
            for (uint32_t h = 0; h < kGroups; h++) {
                const bool same = rank[h] < kMostRanks && at == slot[h];
                again[h] = again[h] || (same && g * kWarpSize + lane < h * kWarpSize + laneInWarp());
                factor[h] = same ? sum(factor[h], its) : factor[h];
            }
        }
    }
    warpSync();  // the terms of the token before are done with
    MORI_DEVICE_UNROLL
    for (uint32_t g = 0; g < kGroups; g++) {
        if (rank[g] == kMostRanks || again[g]) {
            continue;
        }
        const uint32_t place = bitCount(ranks & ((uint64_t(1) << rank[g]) - 1));
        const uint64_t row = slot[g] % op.maxRecv;
        const char* const base = memoryOf(op, rank[g]);
        terms.rows[place] = base + op.regions.combineIn + row * rowBytes;
        terms.scales[place] = reinterpret_cast<const float*>(base + op.regions.combineInScales) + row * args.scaleBlocks;
        terms.weights[place] = reinterpret_cast<const float*>(base + op.regions.combineInWeights) + row * op.topk;
        terms.factors[place] = factor[g];
    }
    warpSync();
    return bitCount(ranks);
}

/// The sums of the weights that travelled with a token's rows.
MORI_DEVICE_INLINE void sumWeights(const Op& op, const CombineArgs& args, uint32_t token, const Terms& terms, uint32_t count) {
    if (args.weights == nullptr) {
        return;
    }
    float* const weights = reinterpret_cast<float*>(memoryOf(op, op.rank) + op.regions.combineOutWeights) + uint64_t(token) * op.topk;
    for (uint32_t k = laneInWarp(); k < op.topk; k += kWarpSize) {
        float total = 0;
        for (uint32_t i = 0; i < count; i++) {
            const float weight = floatOf(loadOnce<uint32_t>(terms.weights[i] + k));
            total = i == 0 ? weight : sum(total, weight);
        }
        weights[k] = oneNaN(total);
    }
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
        if (part.part == 0) {
            sumWeights(op, args, token, terms, count);
        }
    }
}

#if defined(MORI_DEVICE_BULK_COPY)

/// Where a token's rows are that a warp brings.
struct Under {
    uint32_t token = 0, rows = 0, at = 0, piece = 0;  // at: bytes that are on their way, or were summed
};

/// The same for whole tokens, whose rows come by bulk copies. terms is for kPullTokens.
template <Number type>
MORI_DEVICE_INLINE void pullTokens(const Op& op, const CombineArgs& args, Terms* terms, PullStream& pull) {
    const RowShape shape{args.hidden, args.hidden, args.weighted != 0};
    const uint32_t rowBytes = args.hidden * numberBytes(type);
    char* const sums = memoryOf(op, op.rank) + op.regions.combineOut;
    static_assert(kPullTokens == 2, "the token being brought, and the one being summed");
    Under loading, summing, waiting;  // waiting: it is being brought behind the one being summed
    uint32_t next = warpInGrid();
    uint32_t opened = 0, closed = 0;
    loading.at = rowBytes;
    while (true) {
        while (!pull.isFull()) {
            if (loading.at < rowBytes) {
                const uint32_t left = rowBytes - loading.at;
                const uint32_t bytes = left < loading.piece ? left : loading.piece;
                pull.load(terms[(opened - 1) % kPullTokens], loading.rows, loading.at, bytes);
                loading.at += bytes;
                continue;
            }
            if (next >= args.tokens || opened - closed == kPullTokens) {
                break;
            }
            const uint32_t rows = findRows(op, args, next, rowBytes, terms[opened % kPullTokens]);
            const Under one{next, rows, 0, rows != 0 ? pull.pieceOf(rows) : 0};
            (opened == closed ? summing : waiting) = one;
            loading = one;
            loading.at = rows != 0 ? 0 : rowBytes;
            opened++;
            next += gridWarps();
        }
        if (opened == closed) {
            return;
        }
        const Terms& here = terms[closed % kPullTokens];
        char* const out = sums + uint64_t(summing.token) * rowBytes;
        if (summing.rows == 0) {
            sumChunks<type, type, false>(out, here, 0, shape, 0, rowBytes / 16);
            summing.at = rowBytes;
        } else {
            const uint32_t left = rowBytes - summing.at;
            const uint32_t bytes = left < summing.piece ? left : summing.piece;
            sumPiece<type>(out, pull.await(), here, summing.rows, shape, summing.at, bytes);
            pull.release();
            summing.at += bytes;
        }
        if (summing.at == rowBytes) {
            sumWeights(op, args, summing.token, here, summing.rows);
            summing = waiting;
            closed++;
        }
    }
}

/// Whether pullTokens can: rows of one type as they are, at aligned addresses, and tokens enough for all warps.
MORI_DEVICE_INLINE bool canPull(const Op& op, const CombineArgs& args, const PullStream& pull) {
    const uint64_t rowBytes = uint64_t(args.hidden) * numberBytes(Number(args.type));
    uint64_t odd = rowBytes | op.regions.combineIn | op.regions.combineOut;
    for (uint32_t rank = 0; rank < op.world; rank++) {
        odd |= op.bases[rank];
    }
    const uint32_t most = op.world < op.topk ? op.world : op.topk;
    return args.transport == uint32_t(Transport::plain) && numberBytes(Number(args.type)) > 1 && odd % 16 == 0 && rowBytes >> 31 == 0 &&
           args.tokens >= gridWarps() && warpsPerBlock() * kPullTokens <= kMostWarps && pull.pieceOf(most) != 0;
}

#endif

MORI_DEVICE_INLINE void sumAll(const Op& op, const CombineArgs& args, Terms* all) {
    constexpr Number bf16 = Number::bfloat16;
    constexpr Number fp8 = Number::float8E4M3FN;
#if defined(MORI_DEVICE_BULK_COPY)
    PullStream pull;
    if (canPull(op, args, pull)) {
        Terms* const terms = all + warpInBlock() * kPullTokens;
        if (args.type == uint32_t(bf16)) {
            pullTokens<bf16>(op, args, terms, pull);
        } else {
            pullTokens<Number::float32>(op, args, terms, pull);
        }
        return;
    }
#endif
    Terms& terms = all[warpInBlock()];
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
    sumAll(op, args, shared.terms);
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
