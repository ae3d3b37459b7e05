// SPDX-License-Identifier: MIT
/// Sums of rows that lie at several ranks, and rows made small for the way.
#pragma once

#include "mori/device/copy_stream.hpp"
#include "mori/device/number.hpp"
#include "mori/ep/call.hpp"

namespace mori::ep {

namespace internal {

/// The rows of one token, in the order of ranks, in memory of a warp.
struct Terms {
    const char* rows[kMostRanks];
    const float* scales[kMostRanks];
    const float* weights[kMostRanks];  // that travelled with the row
    float factors[kMostRanks];
};

/// How rows lie.
struct RowShape {
    uint32_t hidden;     // elements
    uint32_t blockSize;  // elements that share a scale
    bool weighted;
};

/// What rows are multiplied by: 1 for all, or what the terms have.
enum class Factors { none, some };

/// What a row's elements are multiplied by: 1, which changes none of them, where nothing is asked for.
MORI_DEVICE_INLINE float factorOf(const Terms& terms, uint32_t i, const RowShape& shape) {
    return shape.weighted ? terms.factors[i] : 1.0f;
}

template <bool scaled, Factors factors = Factors::some>
MORI_DEVICE_INLINE float term(const Terms& terms, uint32_t i, const RowShape& shape, float factor, uint32_t element, float value) {
    if constexpr (scaled) {
        value = product(value, terms.scales[i][element / shape.blockSize]);
    }
    return factors == Factors::none ? value : product(factor, value);
}

/// Adds the values of a chunk of the i-th row, whose first element is ``first``, to sums, or makes these of them.
template <Number from, bool scaled, Factors factors>
MORI_DEVICE_INLINE void addChunk(const Terms& terms, uint32_t i, const RowShape& shape, float factor, uint32_t first, const Chunk& chunk, bool begins, float* sums) {
    constexpr uint32_t count = 16 / numberBytes(from);
    float values[count];
    unpack<from>(chunk, values);
    MORI_DEVICE_UNROLL
    for (uint32_t e = 0; e < count; e++) {
        const float value = term<scaled, factors>(terms, i, shape, factor, first + e, values[e]);
        sums[e] = begins ? value : sum(sums[e], value);
    }
}

/// A lane writes sums, of which none is NaN, as one chunk or several.
template <Number from, Number to>
MORI_DEVICE_INLINE void storeSums(char* out, uint32_t first, const float* sums) {
    constexpr uint32_t count = 16 / numberBytes(from);
    constexpr uint32_t each = 16 / numberBytes(to);
    MORI_DEVICE_UNROLL
    for (uint32_t e = 0; e < count; e += each) {
        storeOnce(out + uint64_t(first + e) * numberBytes(to), packNumbers<to>(sums + e));
    }
}

template <uint32_t count>
struct Floats {
    float values[count];
};

/// The same of any sums. It is seldom that one is NaN.
template <Number from, Number to>
MORI_DEVICE_NOINLINE void storeAnySums(char* out, uint32_t first, Floats<16 / numberBytes(from)> sums) {
    constexpr uint32_t each = 16 / numberBytes(to);
    for (float& value : sums.values) {
        value = oneNaN(value);
    }
    for (uint32_t e = 0; e < 16 / numberBytes(from); e += each) {
        storeOnce(out + uint64_t(first + e) * numberBytes(to), pack<to>(sums.values + e, false));
    }
}

/// A chunk of elements that change nothing when they are added, not even the sign of a zero.
template <Number type>
MORI_DEVICE_INLINE Chunk nothing() {
    constexpr uint32_t word = type == Number::float32 ? 0x80000000 : 0x80008000;
    return {{word, word, word, word}};
}

/// A warp sums the chunks [first, end) of rows, of which load(i, chunk) reads one; there is a row, and with ``once`` there are no more than kTerms. A lane
/// has loads of kTerms rows and of kColumns chunks of each under way at once: a load from a peer takes a microsecond and more, and one from shared memory
/// as long as many instructions of the few warps that a block has. Where there are fewer, nothing is added in their place: that is faster than branches,
/// behind which the others would wait.
template <Number from, Number to, bool scaled, uint32_t kTerms, uint32_t kColumns, bool once, Factors factors, class Load>
MORI_DEVICE_INLINE void sumColumns(char* out, const Terms& terms, uint32_t count, const RowShape& shape, uint32_t first, uint32_t end, Load load) {
    constexpr uint32_t elements = 16 / numberBytes(from);
    constexpr bool cheap = numberBytes(from) > 1;  // to add
    MORI_DEVICE_ROLLED
    for (uint32_t at = first + laneInWarp(); at < end; at += kColumns * kWarpSize) {
        float sums[kColumns][elements];
        uint32_t i = 0;
        do {
            Chunk chunk[kTerms][kColumns];
            MORI_DEVICE_UNROLL
            for (uint32_t k = 0; k < kTerms; k++) {
                MORI_DEVICE_UNROLL
                for (uint32_t c = 0; c < kColumns; c++) {
                    chunk[k][c] = nothing<from>();
                    if ((k == 0 || i + k < count) && (c == 0 || at + c * kWarpSize < end)) {
                        chunk[k][c] = load(i + k, at + c * kWarpSize);
                    }
                }
            }
            MORI_DEVICE_UNROLL
            for (uint32_t k = 0; k < kTerms; k++) {
                if (!cheap && i + k >= count) {
                    break;
                }
                const float factor = factors == Factors::some && i + k < count ? factorOf(terms, i + k, shape) : 1.0f;
                MORI_DEVICE_UNROLL
                for (uint32_t c = 0; c < kColumns; c++) {
                    addChunk<from, scaled, factors>(terms, i + k, shape, factor, (at + c * kWarpSize) * elements, chunk[k][c], k == 0 && i == 0, sums[c]);
                }
            }
            i += kTerms;
        } while (!once && i < count);
        bool odd = false;
        MORI_DEVICE_UNROLL
        for (uint32_t c = 0; c < kColumns; c++) {
            MORI_DEVICE_UNROLL
            for (uint32_t e = 0; e < elements; e++) {
                odd |= sums[c][e] != sums[c][e];
            }
        }
        MORI_DEVICE_UNROLL
        for (uint32_t c = 0; c < kColumns; c++) {
            if (c != 0 && at + c * kWarpSize >= end) {
                break;
            }
            if (odd) {
                Floats<elements> any;
                MORI_DEVICE_UNROLL
                for (uint32_t e = 0; e < elements; e++) {
                    any.values[e] = sums[c][e];
                }
                storeAnySums<from, to>(out, (at + c * kWarpSize) * elements, any);
            } else {
                storeSums<from, to>(out, (at + c * kWarpSize) * elements, sums[c]);
            }
        }
    }
}

/// A warp writes zeros, so many chunks.
MORI_DEVICE_INLINE void warpZero(char* out, uint32_t chunks) {
    MORI_DEVICE_ROLLED
    for (uint32_t at = laneInWarp(); at < chunks; at += kWarpSize) {
        storeOnce(out + uint64_t(at) * sizeof(Chunk), Chunk{});
    }
}

/// The same, with as many loads under way as the type allows.
template <Number from, Number to, bool scaled, Factors factors, class Load>
MORI_DEVICE_INLINE void sumChunks(char* out, const Terms& terms, uint32_t count, const RowShape& shape, uint32_t first, uint32_t end, Load load) {
    if constexpr (from == Number::float8E4M3FNUZ) {
        sumColumns<from, to, scaled, 1, 1, false, factors>(out, terms, count, shape, first, end, load);
    } else if constexpr (numberBytes(from) == 1) {  // conversions are much code for each load, and less often asked for
        sumColumns<from, to, scaled, 2, 1, false, factors>(out, terms, count, shape, first, end, load);
    } else if (count <= 2) {
        sumColumns<from, to, scaled, 2, 4, true, factors>(out, terms, count, shape, first, end, load);
    } else if (count <= 4) {
        sumColumns<from, to, scaled, 4, 2, true, factors>(out, terms, count, shape, first, end, load);
    } else {
        sumColumns<from, to, scaled, 8, 1, false, factors>(out, terms, count, shape, first, end, load);
    }
}

/// The same of any alignment and length, slowly.
template <Number from, Number to, bool scaled>
MORI_DEVICE_NOINLINE void sumElements(char* out, const Terms& terms, uint32_t count, uint32_t hidden,
                                      uint32_t blockSize, bool weighted) {
    const RowShape shape{hidden, blockSize, weighted};
    for (uint32_t e = laneInWarp(); e < shape.hidden; e += kWarpSize) {
        float total = 0;
        for (uint32_t i = 0; i < count; i++) {
            const float value = toFloat<from>(loadElement<from>(terms.rows[i] + uint64_t(e) * numberBytes(from)));
            const float part = term<scaled>(terms, i, shape, factorOf(terms, i, shape), e, value);
            total = i == 0 ? part : sum(total, part);
        }
        storeElement<to>(out + uint64_t(e) * numberBytes(to), fromFloat<to>(oneNaN(total), false));
    }
}

template <Number from, Number to, bool scaled>
MORI_DEVICE_INLINE void sumRows(char* out, const Terms& terms, uint32_t count, const RowShape& shape, Part part) {
    uint64_t odd = uint64_t(out) | uint64_t(shape.hidden) * numberBytes(from);
    MORI_DEVICE_ROLLED
    for (uint32_t i = 0; i < count; i++) {
        odd |= uint64_t(terms.rows[i]);
    }
    if (odd % 16 == 0) {
        const uint32_t chunks = shape.hidden / (16 / numberBytes(from));
        const uint32_t first = part.begin(chunks), end = part.end(chunks);
        if (count == 0) {
            constexpr uint32_t each = numberBytes(to) / numberBytes(from) == 0 ? 1 : numberBytes(to) / numberBytes(from);  // chunks of sums
            warpZero(out + uint64_t(first) * each * sizeof(Chunk), (end - first) * each);
            return;
        }
        auto load = [&](uint32_t i, uint32_t chunk) { return loadOnce<Chunk>(terms.rows[i] + uint64_t(chunk) * sizeof(Chunk)); };
        sumChunks<from, to, scaled, Factors::some>(out, terms, count, shape, first, end, load);
    } else if (part.part == 0) {
        sumElements<from, to, scaled>(out, terms, count, shape.hidden, shape.blockSize, shape.weighted);
    }
}

/// The scale of a block whose largest finite magnitude is ``most``: the largest becomes 448. A block of zeros has scale 1.
/// Subnormal scales would be too coarse to divide by, so that there are none.
MORI_DEVICE_INLINE float scaleOf(float most) {
    if (most == 0) {
        return 1;
    }
    const float scale = most / 448.0f;
    return scale < 0x1p-126f ? 0x1p-126f : scale;
}

/// A warp makes one block of elements of bfloat16 into float8, with its scale.
MORI_DEVICE_INLINE void quantBlock(char* to, float* scale, const char* from, uint32_t elements) {
    constexpr Number type = Number::bfloat16;
    uint32_t most = 0;
    for (uint32_t e = laneInWarp(); e < elements; e += kWarpSize) {
        const uint32_t magnitude = bitsOf(toFloat<type>(loadElement<type>(from + e * 2))) & kMagnitude;
        most = magnitude < kInfinity && magnitude > most ? magnitude : most;
    }
    for (uint32_t lane = 0; lane < kWarpSize; lane++) {
        const uint32_t other = uint32_t(warpBroadcast(most, lane));
        most = other > most ? other : most;
    }
    const float by = scaleOf(floatOf(most));
    for (uint32_t e = laneInWarp(); e < elements; e += kWarpSize) {
        const float value = toFloat<type>(loadElement<type>(from + e * 2));
        storeOnce(to + e, uint8_t(fromFloat<Number::float8E4M3FN>(value / by, false)));
    }
    if (laneInWarp() == 0) {
        *scale = by;
    }
}

}  // namespace internal
}  // namespace mori::ep
