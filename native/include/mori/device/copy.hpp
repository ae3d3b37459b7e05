// SPDX-License-Identifier: MIT
/// Copies by a group of threads through global memory: of this GPU, of a peer that is mapped here, of the host.
///
/// Data that is copied once is of no use in a cache: all accesses carry the hint for that. They order nothing: fence.hpp
/// does.
#pragma once

#include "mori/device/vendor.hpp"

#if defined(MORI_DEVICE_CPU)
#include <string.h>
#endif

namespace mori::device {

/// 16 bytes, the widest access of a lane.
struct alignas(16) Chunk {
    uint32_t words[4];
};

namespace internal {

#if defined(MORI_DEVICE_CUDA)
/// Addresses of the global space, which accesses of that space want, have the same bits as generic ones; the
/// instruction costs nothing.
MORI_DEVICE_INLINE uint64_t globalAddress(const void* address) {
    uint64_t global = 0;
    asm("cvta.to.global.u64 %0, %1;" : "=l"(global) : "l"(address));
    return global;
}
#elif defined(MORI_DEVICE_HIP)
template <class T>
using Global = __attribute__((address_space(1))) T;
using Lanes4 = uint32_t __attribute__((ext_vector_type(4)));
#endif

}  // namespace internal

/// Loads what is read once. T is Chunk or an unsigned integer of 8, 4, 2 bytes or one, and the address is aligned to it.
template <class T>
MORI_DEVICE_INLINE T loadOnce(const void* address) {
    T value{};
#if defined(MORI_DEVICE_CUDA)
    const uint64_t from = internal::globalAddress(address);
    if constexpr (sizeof(T) == 16) {
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3])
                     : "l"(from));
    } else if constexpr (sizeof(T) == 8) {
        asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(value) : "l"(from));
    } else if constexpr (sizeof(T) == 4) {
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(value) : "l"(from));
    } else if constexpr (sizeof(T) == 2) {
        uint32_t wide = 0;
        asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=r"(wide) : "l"(from));
        value = T(wide);
    } else {
        uint32_t wide = 0;
        asm volatile("ld.global.L1::no_allocate.u8 %0, [%1];" : "=r"(wide) : "l"(from));
        value = T(wide);
    }
#elif defined(MORI_DEVICE_HIP)
    if constexpr (sizeof(T) == 16) {
        const internal::Lanes4 lanes = __builtin_nontemporal_load((const internal::Global<internal::Lanes4>*)address);
        value = T{{lanes[0], lanes[1], lanes[2], lanes[3]}};
    } else {
        value = __builtin_nontemporal_load((const internal::Global<T>*)address);
    }
#else
    memcpy(&value, address, sizeof(T));
#endif
    return value;
}

/// Loads what nobody writes while the kernel runs, a word of 4 or 8 bytes, by the way of read-only data: it need not be
/// in the order of other accesses, nor come from memory again after each fence.
template <class T>
MORI_DEVICE_INLINE T loadConstant(const T* address) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
#if defined(MORI_DEVICE_CUDA)
    if constexpr (sizeof(T) == 8) {
        uint64_t word = 0;
        asm("ld.global.nc.u64 %0, [%1];" : "=l"(word) : "l"(internal::globalAddress(address)));
        return (T)word;
    } else {
        uint32_t word = 0;
        asm("ld.global.nc.u32 %0, [%1];" : "=r"(word) : "l"(internal::globalAddress(address)));
        return (T)word;
    }
#elif defined(MORI_DEVICE_HIP)
    return *(const __attribute__((address_space(4))) T*)address;
#else
    return *address;
#endif
}

/// Stores what this GPU does not read again soon. T is as for loadOnce, and the address is aligned to it.
template <class T>
MORI_DEVICE_INLINE void storeOnce(void* address, const T& value) {
#if defined(MORI_DEVICE_CUDA)
    const uint64_t to = internal::globalAddress(address);
    if constexpr (sizeof(T) == 16) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.words[0]), "r"(value.words[1]),
                     "r"(value.words[2]), "r"(value.words[3])
                     : "memory");
    } else if constexpr (sizeof(T) == 8) {
        asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
    } else if constexpr (sizeof(T) == 4) {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
    } else if constexpr (sizeof(T) == 2) {
        asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "r"(uint32_t(value)) : "memory");
    } else {
        asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"(uint32_t(value)) : "memory");
    }
#elif defined(MORI_DEVICE_HIP)
    if constexpr (sizeof(T) == 16) {
        const internal::Lanes4 lanes = {value.words[0], value.words[1], value.words[2], value.words[3]};
        __builtin_nontemporal_store(lanes, (internal::Global<internal::Lanes4>*)address);
    } else {
        __builtin_nontemporal_store(value, (internal::Global<T>*)address);
    }
#else
    memcpy(address, &value, sizeof(T));
#endif
}

/// The calling thread's place in a group that copies together.
struct Place {
    uint32_t rank, size;
};

namespace internal {

/// Copies count words that are aligned on both sides. A lane has kInFlight loads under way before its first store:
/// that, times the threads of the GPU, must cover the bytes that memory or the link keeps in flight.
template <class T>
MORI_DEVICE_INLINE void copyWords(char* to, const char* from, uint64_t count, Place place) {
    constexpr uint32_t kInFlight = 8;
    T words[kInFlight];
    uint64_t at = place.rank;
    if constexpr (sizeof(T) == 16) {
        for (; at + (kInFlight - 1) * place.size < count; at += kInFlight * place.size) {
            MORI_DEVICE_UNROLL
            for (uint32_t k = 0; k < kInFlight; k++) {
                words[k] = loadOnce<T>(from + (at + k * place.size) * sizeof(T));
            }
            MORI_DEVICE_UNROLL
            for (uint32_t k = 0; k < kInFlight; k++) {
                storeOnce(to + (at + k * place.size) * sizeof(T), words[k]);
            }
        }
    }
    for (; at < count; at += kInFlight * place.size) {
        MORI_DEVICE_UNROLL
        for (uint32_t k = 0; k < kInFlight; k++) {
            if (at + k * place.size < count) {
                words[k] = loadOnce<T>(from + (at + k * place.size) * sizeof(T));
            }
        }
        MORI_DEVICE_UNROLL
        for (uint32_t k = 0; k < kInFlight; k++) {
            if (at + k * place.size < count) {
                storeOnce(to + (at + k * place.size) * sizeof(T), words[k]);
            }
        }
    }
}

/// Copies a few bytes by one thread, whose accesses come one after the other: each as wide, up to ``widest``, as the
/// alignment and what is left allow. Both sides are as far from alignment to ``widest``.
MORI_DEVICE_INLINE void copyFew(char* to, const char* from, uint64_t bytes, uint32_t widest) {
    while (bytes > 0) {
        const uint64_t aligned = (uint64_t(to) | widest) & -(uint64_t(to) | widest);
        uint32_t width = 1;
        if (aligned >= 8 && bytes >= 8) {
            width = 8;
            storeOnce(to, loadOnce<uint64_t>(from));
        } else if (aligned >= 4 && bytes >= 4) {
            width = 4;
            storeOnce(to, loadOnce<uint32_t>(from));
        } else if (aligned >= 2 && bytes >= 2) {
            width = 2;
            storeOnce(to, loadOnce<uint16_t>(from));
        } else {
            storeOnce(to, loadOnce<uint8_t>(from));
        }
        to += width;
        from += width;
        bytes -= width;
    }
}

/// Copies a few bytes: a group takes them one by one, side by side, but an aligned word of 8 bytes at their begin as one store. It may be
/// a flag, which whoever waits for it must not see in parts.
MORI_DEVICE_INLINE void copyBytes(char* to, const char* from, uint64_t bytes, Place place, uint32_t widest = 1) {
    if (place.size == 1) {
        copyFew(to, from, bytes, widest);
        return;
    }
    if (widest >= 8 && bytes >= 8 && uint64_t(to) % 8 == 0) {
        if (place.rank == 0) {
            storeOnce(to, loadOnce<uint64_t>(from));
        }
        to += 8;
        from += 8;
        bytes -= 8;
    }
    for (uint64_t at = place.rank; at < bytes; at += place.size) {
        storeOnce(to + at, loadOnce<uint8_t>(from + at));
    }
}

}  // namespace internal

/// A copy of any alignment as bytes until the destination is aligned, words, and the bytes that are left.
struct Alignment {
    uint64_t head, middle, tail;

    /// The middle is whole words of so many bytes, a power of two, and begins where ``to`` is aligned to them.
    MORI_DEVICE_INLINE Alignment(const void* to, uint64_t bytes, uint64_t word) {
        head = (word - uint64_t(to) % word) % word;
        head = head < bytes ? head : bytes;
        middle = (bytes - head) / word * word;
        tail = bytes - head - middle;
    }
};

namespace internal {

/// ``from`` is as far from alignment to T as ``to``.
template <class T>
MORI_DEVICE_INLINE void copyAligned(char* to, const char* from, uint64_t bytes, Place place) {
    const Alignment part(to, bytes, sizeof(T));
    copyBytes(to, from, part.head, place, sizeof(T));
    copyWords<T>(to + part.head, from + part.head, part.middle / sizeof(T), place);
    copyBytes(to + part.head + part.middle, from + part.head + part.middle, part.tail, place, sizeof(T));
}

}  // namespace internal

/// The threads of a group copy together: any size, any alignment. Accesses are as wide, 16, 8, 4 bytes or one, as divides
/// to - from.
MORI_DEVICE_INLINE void groupCopy(void* to, const void* from, uint64_t bytes, Place place) {
    char* const dst = static_cast<char*>(to);
    const char* const src = static_cast<const char*>(from);
    const uint64_t apart = uint64_t(dst) - uint64_t(src);
    if (apart % 16 == 0) {
        internal::copyAligned<Chunk>(dst, src, bytes, place);
    } else if (apart % 8 == 0) {
        internal::copyAligned<uint64_t>(dst, src, bytes, place);
    } else if (apart % 4 == 0) {
        internal::copyAligned<uint32_t>(dst, src, bytes, place);
    } else {
        internal::copyWords<uint8_t>(dst, src, bytes, place);
    }
}

/// The lanes of a warp copy together.
MORI_DEVICE_INLINE void warpCopy(void* to, const void* from, uint64_t bytes) {
    groupCopy(to, from, bytes, Place{laneInWarp(), kWarpSize});
}

/// The same where it is seldom asked for: it is much code, and a kernel that runs for microseconds waits for the code that it comes by.
MORI_DEVICE_APART void warpCopyApart(void* to, const void* from, uint64_t bytes) { warpCopy(to, from, bytes); }

}  // namespace mori::device
