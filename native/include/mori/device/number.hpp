// SPDX-License-Identifier: MIT
/// Elements of rows and float32: exact in one direction, rounded to nearest even in the other, bit for bit what the host
/// makes of them (native/hostmath).
#pragma once

#include "mori/device/copy.hpp"

namespace mori::device {

/// The numbers of mori.tensor_utils.DTYPE_TO_INT.
enum class Number : uint32_t { float32 = 0, bfloat16 = 1, float8E4M3FN = 2, float8E4M3FNUZ = 3 };

MORI_HOST_DEVICE constexpr uint32_t numberBytes(Number type) {
    return type == Number::float32 ? 4 : type == Number::bfloat16 ? 2 : 1;
}

MORI_DEVICE_INLINE uint32_t bitsOf(float value) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    return bits;
}

MORI_DEVICE_INLINE float floatOf(uint32_t bits) {
    float value = 0;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
}

/// Of the bits of a float32.
constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kNaN = 0x7fc00000;
constexpr uint32_t kMagnitude = 0x7fffffff;

namespace internal {

/// E4M3 has 3 bits of mantissa. Moved to where float32 has its bits, it is the same number but for the difference of the
/// biases, subnormal or not; so the product is exact.
MORI_DEVICE_INLINE uint32_t fromE4M3(uint32_t code, float rebias) { return bitsOf(floatOf(code << 20) * rebias); }

/// The code of a magnitude, past 0x7f where it does not fit. Subnormal results are rounded by the adder: the last place of
/// magic is their unit.
MORI_DEVICE_INLINE uint32_t toE4M3(uint32_t magnitude, uint32_t least, float magic, uint32_t rebias) {
    if (magnitude < least) {
        return bitsOf(floatOf(magnitude) + magic) - bitsOf(magic);
    }
    return ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (rebias << 3);
}

}  // namespace internal

/// Rounded by itself: no compiler makes one instruction, and one rounding, of a product and a sum.
MORI_DEVICE_INLINE float product(float a, float b) {
#if defined(MORI_DEVICE_CUDA)
    float value = 0;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
    return value;
#else
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
    return a * b;
#endif
}

MORI_DEVICE_INLINE float sum(float a, float b) {
#if defined(MORI_DEVICE_CUDA)
    float value = 0;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
    return value;
#else
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
    return a + b;
#endif
}

/// All NaNs as one.
MORI_DEVICE_INLINE float oneNaN(float value) { return value == value ? value : floatOf(kNaN); }

/// The element's bits as float32.
template <Number type>
MORI_DEVICE_INLINE float toFloat(uint32_t bits) {
    if constexpr (type == Number::float32) {
        return floatOf(bits);
    } else if constexpr (type == Number::bfloat16) {
        return floatOf(bits << 16);
    } else if constexpr (type == Number::float8E4M3FN) {
        const uint32_t code = bits & 0x7f;
        const uint32_t value = code == 0x7f ? kNaN : internal::fromE4M3(code, 0x1p120f);
        return floatOf(value | (bits & 0x80) << 24);
    } else {
        const uint32_t value = internal::fromE4M3(bits & 0x7f, 0x1p119f) | (bits & 0x80) << 24;
        return floatOf(bits == 0x80 ? kNaN : value);
    }
}

/// The bits of the element nearest to value. With saturate, what is too large for the 8-bit types becomes their largest
/// number, else NaN.
template <Number type>
MORI_DEVICE_INLINE uint32_t fromFloat(float value, bool saturate) {
    const uint32_t bits = bitsOf(value);
    const uint32_t magnitude = bits & kMagnitude;
    if constexpr (type == Number::float32) {
        return bits;
    } else if constexpr (type == Number::bfloat16) {
        return magnitude > kInfinity ? (bits >> 16 & 0x8000) | 0x7fc0
                                               : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    } else if constexpr (type == Number::float8E4M3FN) {
        uint32_t code = internal::toE4M3(magnitude, 0x3c800000, 0x1p14f, 120);
        code = code > 0x7e ? (saturate ? 0x7e : 0x7f) : code;
        code = magnitude > kInfinity ? 0x7f : code;
        return code | (bits >> 24 & 0x80);
    } else {
        uint32_t code = internal::toE4M3(magnitude, 0x3c000000, 0x1p13f, 119);
        code = code > 0x7f ? (saturate ? 0x7f : 0x80) : code;
        code = magnitude > kInfinity ? 0x80 : code;
        return code == 0 ? 0 : code | (bits >> 24 & 0x80);
    }
}

/// One element of memory of any alignment; its bits.
template <Number type>
MORI_DEVICE_INLINE uint32_t loadElement(const char* at) {
    if constexpr (numberBytes(type) == 1) {
        return loadOnce<uint8_t>(at);
    } else {
        uint32_t bits = 0;
        for (uint32_t i = 0; i < numberBytes(type); i++) {
            bits |= uint32_t(loadOnce<uint8_t>(at + i)) << (8 * i);
        }
        return bits;
    }
}

template <Number type>
MORI_DEVICE_INLINE void storeElement(char* at, uint32_t bits) {
    for (uint32_t i = 0; i < numberBytes(type); i++) {
        storeOnce(at + i, uint8_t(bits >> (8 * i)));
    }
}

/// The elements of a chunk.
template <Number type>
MORI_DEVICE_INLINE void unpack(const Chunk& chunk, float* values) {
    constexpr uint32_t bytes = numberBytes(type);
    MORI_DEVICE_UNROLL
    for (uint32_t i = 0; i < 16 / bytes; i++) {
        const uint32_t word = chunk.words[i * bytes / 4];
        const uint32_t bits = bytes == 4 ? word : word >> (i * bytes % 4 * 8) & ((1u << (bytes * 8 % 32)) - 1);
        values[i] = toFloat<type>(bits);
    }
}

template <Number type>
MORI_DEVICE_INLINE Chunk pack(const float* values, bool saturate) {
    constexpr uint32_t bytes = numberBytes(type);
    Chunk chunk{};
    MORI_DEVICE_UNROLL
    for (uint32_t i = 0; i < 16 / bytes; i++) {
        chunk.words[i * bytes / 4] |= fromFloat<type>(values[i], saturate) << (i * bytes % 4 * 8);
    }
    return chunk;
}

/// The same for values of which none is NaN.
template <Number type>
MORI_DEVICE_INLINE Chunk packNumbers(const float* values) {
#if defined(MORI_DEVICE_CUDA)
    if constexpr (type == Number::bfloat16) {  // one instruction for two; its NaN is another one
        Chunk chunk{};
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(chunk.words[i]) : "f"(values[2 * i + 1]), "f"(values[2 * i]));
        }
        return chunk;
    }
#endif
    return pack<type>(values, false);
}

}  // namespace mori::device
