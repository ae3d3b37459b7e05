// SPDX-License-Identifier: MIT
// The standard-MoE form: received rows are sorted by the experts that they are for, and what the experts made of them is summed.
#include "mori/ep/standard.hpp"

#include "mori/ep/sums.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

struct PlaceShared {
    uint32_t rows[kMostWarps];  // of a warp, in one step
};

struct UnpackShared {
    Terms terms[kMostWarps];
    uint32_t word;
};

/// How many rows the last dispatch brought. What cannot be is none: the dispatch has told it.
MORI_DEVICE_INLINE uint32_t receivedRows(const PackArgs& args) {
    const int32_t rows = *args.received;
    return rows < 0 || uint32_t(rows) > args.maxRecv ? 0 : uint32_t(rows);
}

/// A block gives one expert's rows their places, in their order.
MORI_DEVICE_INLINE void placeExpert(const PackArgs& args, uint32_t rows, uint32_t expert, PlaceShared& shared) {
    uint32_t before = 0;
    for (uint32_t first = 0; first < rows; first += blockSize()) {
        const uint32_t row = first + threadInBlock();
        const uint64_t choices = uint64_t(row) * args.topk;
        bool mine = false;
        for (uint32_t k = 0; row < rows && k < args.topk; k++) {
            const uint32_t chosen = uint32_t(args.indices[choices + k]) - args.firstExpert;
            mine = mine || chosen == expert;
            if (expert == 0 && chosen >= args.experts) {
                args.slots[choices + k] = -1;
            }
        }
        const uint64_t lanes = warpBallot(mine);
        if (laneInWarp() == 0) {
            shared.rows[warpInBlock()] = bitCount(lanes);
        }
        blockSync();
        uint32_t place = before + bitCount(lanes & ((uint64_t(1) << laneInWarp()) - 1));
        for (uint32_t warp = 0; warp < warpsPerBlock(); warp++) {
            place += warp < warpInBlock() ? shared.rows[warp] : 0;
            before += shared.rows[warp];
        }
        blockSync();
        if (mine && place < args.room) {
            const uint32_t slot = expert * args.room + place;
            args.info[slot] = int32_t(row);
            for (uint32_t k = 0; k < args.topk; k++) {
                if (uint32_t(args.indices[choices + k]) - args.firstExpert == expert) {
                    args.slots[choices + k] = int32_t(slot);
                }
            }
        }
    }
    if (threadInBlock() == 0) {
        args.counts[expert] = int32_t(before < args.room ? before : args.room);
    }
}

/// The rows of one choice after the other, as a warp finds them.
MORI_DEVICE_INLINE uint32_t findChoices(const UnpackArgs& args, uint64_t row, uint64_t rowBytes, Terms& terms) {
    uint32_t count = 0;
    warpSync();  // the terms of the row before are done with
    for (uint32_t first = 0; first < args.topk; first += kWarpSize) {
        const uint32_t k = first + laneInWarp();
        const int32_t slot = k < args.topk ? args.slots[row * args.topk + k] : -1;
        const uint64_t lanes = warpBallot(slot >= 0);
        if (slot >= 0) {
            const uint32_t place = count + bitCount(lanes & ((uint64_t(1) << laneInWarp()) - 1));
            terms.rows[place] = static_cast<const char*>(args.packed) + uint64_t(slot) * rowBytes;
            terms.factors[place] = args.weights[row * args.topk + k];
        }
        count += bitCount(lanes);
    }
    warpSync();
    return count;
}

template <Number type>
MORI_DEVICE_INLINE void sumChoices(const UnpackArgs& args, uint32_t rows, Terms& terms) {
    const uint64_t rowBytes = uint64_t(args.hidden) * numberBytes(type);
    const RowShape shape{args.hidden, args.hidden, true};
    for (uint32_t row = warpInGrid(); row < rows; row += gridWarps()) {
        const uint32_t count = findChoices(args, row, rowBytes, terms);
        sumRows<type, type, false>(static_cast<char*>(args.out) + row * rowBytes, terms, count, shape, Part{0, 1});
    }
}

}  // namespace
}  // namespace mori::ep

/// A block for each expert, or fewer.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_place(const mori::ep::PackArgs args) {
    using namespace mori::ep;
    MORI_DEVICE_SHARED(PlaceShared, shared);
    const uint32_t rows = receivedRows(args);
    for (uint32_t expert = blockInGrid(); expert < args.experts; expert += gridBlocks()) {
        placeExpert(args, rows, expert, shared);
    }
    if (blockInGrid() == 0 && threadInBlock() == 0) {
        *args.rows = int32_t(rows);
    }
}

/// After mori_ep_place, in any grid: a warp for each place.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_pack(const mori::ep::PackArgs args) {
    using namespace mori::ep;
    uint64_t place = warpInGrid();
    for (uint32_t expert = 0; expert < args.experts; expert++) {
        const uint64_t rows = uint64_t(uint32_t(args.counts[expert]));
        for (; place < rows; place += gridWarps()) {
            const uint64_t slot = uint64_t(expert) * args.room + place;
            warpCopy(static_cast<char*>(args.packed) + slot * args.rowBytes,
                     static_cast<const char*>(args.input) + uint64_t(uint32_t(args.info[slot])) * args.rowBytes, args.rowBytes);
        }
        place -= rows;
    }
}

/// Blocks of up to kMostThreads, a warp for each row.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_unpack(const mori::ep::UnpackArgs args) {
    using namespace mori::ep;
    const Op& op = *args.op;
    MORI_DEVICE_SHARED(UnpackShared, shared);
    if (blockIsBroken(op, shared.word)) {
        return;
    }
    if (args.pulled != 0 && !blockAwaits(op, op.regions.pulled, flagValue(op.progress->combines, 0), true, shared.word)) {
        return;
    }
    const uint32_t rows = uint32_t(*args.rows);
    Terms& terms = shared.terms[warpInBlock()];
    if (args.type == uint32_t(Number::bfloat16)) {
        sumChoices<Number::bfloat16>(args, rows, terms);
    } else if (args.type == uint32_t(Number::float32)) {
        sumChoices<Number::float32>(args, rows, terms);
    } else if (args.type == uint32_t(Number::float8E4M3FN)) {
        sumChoices<Number::float8E4M3FN>(args, rows, terms);
    } else {
        sumChoices<Number::float8E4M3FNUZ>(args, rows, terms);
    }
}
