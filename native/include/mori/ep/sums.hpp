// SPDX-License-Identifier: MIT
/// The two halves of combine: rows are put where others find them, and those of each token are found and summed.
#pragma once

#include "mori/ep/rows.hpp"

namespace mori::ep {

namespace internal {

/// A run of bytes for each warp, whole lines.
MORI_DEVICE_INLINE void copyShare(char* to, const char* from, uint64_t bytes, CopyStream& stream) {
    constexpr uint64_t kLine = 128;
    const uint64_t lines = (bytes + kLine - 1) / kLine;
    const uint64_t first = beginOf(uint32_t(lines), warpInGrid(), gridWarps()) * kLine;
    const uint64_t next = beginOf(uint32_t(lines), warpInGrid() + 1, gridWarps()) * kLine;
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
        if (args.transport == uint32_t(Transport::direct)) {
            castRows(base + op.regions.combineIn, input, rows * args.hidden);
        } else if (args.transport == uint32_t(Transport::blockwise)) {
            quantRows(op, args, rows);
        } else {
            copyShare(base + op.regions.combineIn, input, rows * args.hidden * numberBytes(Number(args.type)), stream);
        }
    }
    stream.finish();
}

/// How many rows came to this rank.
MORI_DEVICE_INLINE int32_t receivedOf(const Op& op, const CombineArgs& args) { return *(args.rows != nullptr ? args.rows : op.received); }

/// Whether the call was given as many rows as came. If not, the op is broken.
MORI_DEVICE_INLINE bool hasRows(const Op& op, const CombineArgs& args) {
    const int32_t rows = receivedOf(op, args);
    if (rows >= 0 && uint32_t(rows) <= op.maxRecv && uint32_t(rows) <= args.given) {
        return true;
    }
    if (threadInBlock() == 0) {
        op.notice->rows = rows;
        breakOp(op, Fault::rows);
    }
    return false;
}

/// All blocks put the rows, if they lie elsewhere. ``last``: in the threads of the block that ends last. False: there are fewer rows than came.
MORI_DEVICE_INLINE bool putRows(const Op& op, const CombineArgs& args, uint32_t& shared, bool& last) {
    last = blockInGrid() == 0;
    if (args.input == nullptr && args.weights == nullptr) {
        return true;
    }
    if (!hasRows(op, args)) {
        return false;
    }
    fill(op, args, uint64_t(receivedOf(op, args)));
    last = isLastBlock<Scope::device>(op, 0, shared);
    return true;
}

/// What the warps of a block have of shared memory to sum tokens, and a word to agree on.
struct Summing {
    Terms terms[2 * kMostWarps];  // of two tokens of a warp, where it brings one while it sums another
    uint32_t word;
};

/// All threads of the block wait; false in all of them if the op is broken.
MORI_DEVICE_APART bool blockAwaits(const Op& op, uint64_t flags, uint64_t value, bool anySignature, uint32_t& shared) {
    blockSync();
    if (warpInBlock() == 0) {
        const bool came = awaitFlags(op, flags, value, kEveryone, anySignature);
        if (laneInWarp() == 0) {
            shared = came;
        }
    }
    blockSync();
    return shared != 0;
}

/// A row that a rank made of a token, with what belongs to it.
struct Row {
    const char* elements;
    const float* scales;
    const float* weights;
    bool summed;  // it is a sum already, with factors applied
};

/// Where rows are that loads reach: with the ranks that made them.
class AtRanks {
public:
    MORI_DEVICE_INLINE AtRanks(const Op& op, const CombineArgs& args, uint64_t rowBytes) : op_(op), args_(args), rowBytes_(rowBytes) {}

    /// Choices of the same slot have one row.
    MORI_DEVICE_INLINE uint32_t slot(uint32_t choice) const { return choice; }

    MORI_DEVICE_INLINE Row row(uint32_t, uint32_t rank, uint64_t row) const {
        const char* const base = memoryOf(op_, rank);
        return {base + op_.regions.combineIn + row * rowBytes_,
                reinterpret_cast<const float*>(base + op_.regions.combineInScales) + row * args_.scaleBlocks,
                reinterpret_cast<const float*>(base + op_.regions.combineInWeights) + row * op_.topk, false};
    }

private:
    const Op& op_;
    const CombineArgs& args_;
    uint64_t rowBytes_;
};

/// A choice of a token that a lane looks at.
struct Choice {
    uint32_t slot = ~0u;
    uint32_t rank = kMostRanks;  // that has the row; kMostRanks: it goes nowhere
    float weight = 0;

    MORI_DEVICE_INLINE bool goes() const { return rank < kMostRanks; }
    MORI_DEVICE_INLINE uint64_t bit() const { return goes() ? uint64_t(1) << rank : 0; }
};

/// Where the rows of the token lie, in the order of ranks, and how many there are. Each lane has a choice at a time.
template <class Where>
MORI_DEVICE_INLINE uint32_t findRows(const Op& op, const CombineArgs& args, uint32_t token, const Where& where, Terms& terms) {
    const uint64_t first = uint64_t(token) * op.topk;
    const int32_t* const slots = (args.route != nullptr ? args.route : op.slots) + first;
    auto read = [&](uint32_t group) {
        Choice choice;
        const uint32_t k = group * kWarpSize + laneInWarp();
        if (k < op.topk) {
            choice.slot = where.slot(uint32_t(slots[k]));
            choice.weight = args.weighted != 0 ? op.weights[first + k] : 0;
            const uint32_t rank = choice.slot / op.maxRecv;
            choice.rank = rank < op.world && !isDead(op, rank) ? rank : kMostRanks;
        }
        return choice;
    };
    const uint32_t groups = (op.topk + kWarpSize - 1) / kWarpSize;
    Choice mine;
    uint64_t ranks = 0, before = 0;
    MORI_DEVICE_ROLLED
    for (uint32_t group = groups; group-- > 0;) {
        mine = read(group);
        ranks |= warpOr(mine.bit());
    }
    warpSync();  // the terms of the token before are done with
    MORI_DEVICE_ROLLED
    for (uint32_t group = 0; group < groups; group++) {
        if (group != 0) {
            mine = read(group);
        }
        // Choices of the same slot have one row, whose factor is the sum of their weights.
        const uint64_t same = warpMatch(mine.goes() ? mine.slot : ~0u);
        const uint32_t place = bitCount(ranks & (mine.bit() - 1));
        float factor = (before & mine.bit()) != 0 ? terms.factors[place] : 0;
        MORI_DEVICE_ROLLED
        for (uint32_t lane = 0; args.weighted != 0 && lane < kWarpSize && group * kWarpSize + lane < op.topk; lane++) {
            const float its = floatOf(uint32_t(warpBroadcast(bitsOf(mine.weight), lane)));
            factor = (same >> lane & 1) != 0 ? sum(factor, its) : factor;
        }
        warpSync();
        if (mine.goes() && lowestBit(same) == laneInWarp()) {
            const Row row = where.row(token, mine.rank, mine.slot % op.maxRecv);
            terms.rows[place] = row.elements;
            terms.scales[place] = row.scales;
            terms.weights[place] = row.weights;
            terms.factors[place] = row.summed ? 1.0f : factor;
        }
        before |= groups > 1 ? warpOr(mine.bit()) : 0;
        warpSync();
    }
    return bitCount(ranks);
}

/// A warp sums the weights that travelled with rows, topk of each, if any did.
MORI_DEVICE_INLINE void sumWeights(const Op& op, const CombineArgs& args, float* weights, const Terms& terms, uint32_t count) {
    for (uint32_t k = laneInWarp(); args.weights != nullptr && k < op.topk; k += kWarpSize) {
        float total = 0;
        MORI_DEVICE_ROLLED
        for (uint32_t i = 0; i < count; i++) {
            const float weight = floatOf(loadOnce<uint32_t>(terms.weights[i] + k));
            total = i == 0 ? weight : sum(total, weight);
        }
        weights[k] = oneNaN(total);
    }
}

/// A token whose rows were found: how many these are, and where their sum goes.
struct Found {
    uint32_t rows;
    char* sum;
    float* weights;
};

/// This rank's tokens, whose rows are where Where says.
template <class Where>
class OwnTokens {
public:
    MORI_DEVICE_INLINE OwnTokens(const Op& op, const CombineArgs& args, const Where& where) : op_(op), args_(args), where_(where) {}

    MORI_DEVICE_INLINE uint32_t count() const { return args_.tokens; }

    /// bytes: of a sum.
    MORI_DEVICE_INLINE Found find(uint32_t token, uint64_t bytes, Terms& terms) const {
        char* const base = memoryOf(op_, op_.rank);
        return {findRows(op_, args_, token, where_, terms), base + op_.regions.combineOut + token * bytes,
                reinterpret_cast<float*>(base + op_.regions.combineOutWeights) + uint64_t(token) * op_.topk};
    }

private:
    const Op& op_;
    const CombineArgs& args_;
    const Where& where_;
};

/// Bytes of an element on its way.
MORI_DEVICE_INLINE uint32_t wayBytes(const CombineArgs& args) {
    const bool quantised = args.transport == uint32_t(Transport::direct) || args.transport == uint32_t(Transport::blockwise);
    return quantised ? 1 : numberBytes(Number(args.type));
}

/// A warp's share of the sums of tokens. All warps of the team call ready() once, behind which rows may be read, and when the places of a warp's first
/// are found; false if it is.
template <Number from, Number to, bool scaled, class Tokens, class Ready>
MORI_DEVICE_INLINE bool sumTokens(const Op& op, const CombineArgs& args, const Tokens& tokens, Terms& terms, Team team, Ready ready) {
    const uint32_t count = tokens.count();
    const uint32_t blocks = args.scaleBlocks != 0 ? args.scaleBlocks : 1;
    const RowShape shape{args.hidden, (args.hidden + blocks - 1) / blocks, args.weighted != 0};
    // Of few tokens several warps have one each: a warp alone waits for a peer's memory dozens of times, one after the other.
    const Parts parts(count, args.hidden * numberBytes(from), team.warps);
    bool waits = true;
    for (uint32_t item = team.warp;; item += team.warps) {
        const bool is = item < count * parts.each;
        Found found{0, nullptr, nullptr};
        if (is) {
            found = tokens.find(item / parts.each, uint64_t(args.hidden) * numberBytes(to), terms);
        }
        if (waits && !ready()) {
            return false;
        }
        waits = false;
        if (!is) {
            return true;
        }
        const Part part{item % parts.each, parts.each};
        sumRows<from, to, scaled>(found.sum, terms, found.rows, shape, part);
        if (part.part == 0) {
            sumWeights(op, args, found.weights, terms, found.rows);
        }
    }
}

/// A warp's share of all sums, behind ready().
template <class Tokens, class Ready>
MORI_DEVICE_INLINE bool sumAsTyped(const Op& op, const CombineArgs& args, const Tokens& tokens, Terms& terms, Team team, Ready ready) {
    constexpr Number bf16 = Number::bfloat16;
    constexpr Number fp8 = Number::float8E4M3FN;
    constexpr Number f32 = Number::float32;
    constexpr Number fnuz = Number::float8E4M3FNUZ;
    if (args.transport == uint32_t(Transport::direct)) {
        return sumTokens<fp8, bf16, false>(op, args, tokens, terms, team, ready);
    }
    if (args.transport == uint32_t(Transport::blockwise)) {
        return sumTokens<fp8, bf16, true>(op, args, tokens, terms, team, ready);
    }
    if (args.type == uint32_t(bf16)) {
        return sumTokens<bf16, bf16, false>(op, args, tokens, terms, team, ready);
    }
    if (args.type == uint32_t(fp8)) {
        return sumTokens<fp8, fp8, false>(op, args, tokens, terms, team, ready);
    }
    if (args.type == uint32_t(f32)) {
        return sumTokens<f32, f32, false>(op, args, tokens, terms, team, ready);
    }
    return sumTokens<fnuz, fnuz, false>(op, args, tokens, terms, team, ready);
}

}  // namespace internal
}  // namespace mori::ep
