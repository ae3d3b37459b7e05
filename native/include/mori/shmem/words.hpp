// SPDX-License-Identifier: MIT
/// Single words: values that are put from registers, atomic operations and waits, by the names that programs call: see
/// device.hpp. Words of 1 and 2 bytes work as those of 4 and 8 do; an atomic operation on one exchanges the word of 4
/// bytes around it.
#pragma once

#include "mori/shmem/object.hpp"
#include "mori/shmem/operations.hpp"

namespace mori::shmem {

// ---- values from registers ----

namespace internal {

/// The bytes of a value as a word, the rest zeros.
template <class T>
MORI_DEVICE_INLINE uint64_t bitsOf(T value) {
    static_assert(sizeof(T) <= 8);
    union {
        uint64_t bits;
        T value;
    } both{0};
    both.value = value;
    return both.bits;
}

template <Group group>
MORI_DEVICE_INLINE void groupPutImmediate(void* symmetric, uint64_t value, uint32_t bytes, int pe, int qp) {
    if (place<group>().rank == 0) {
        putImmediate(symmetric, value, bytes, pe, qp);
    }
}

/// The value is the bytes, 1, 2, 4 or 8, at ``from``.
template <Group group>
MORI_DEVICE_INLINE void groupPutOfSize(void* symmetric, const void* from, uint64_t bytes, int pe, int qp) {
    uint64_t value = 0;
    for (uint64_t i = 0; i < bytes && i < 8; i++) {
        value |= uint64_t(static_cast<const uint8_t*>(from)[i]) << 8 * i;
    }
    groupPutImmediate<group>(symmetric, value, uint32_t(bytes < 8 ? bytes : 8), pe, qp);
}

template <Group group>
MORI_DEVICE_INLINE void groupAtomicOfSize(void* symmetric, const void* value, uint64_t bytes, uint32_t op, int pe, int qp) {
    if (place<group>().rank == 0) {
        atomicOfSize(symmetric, value, bytes, op, pe, qp);
    }
}

}  // namespace internal

#define MORI_SHMEM_WORD(S, group)                                                                                      \
    MORI_DEVICE_INLINE void ShmemPutSizeImmNbi##S(void* dest, const void* val, uint64_t bytes, int pe, int qpId = 0) { \
        internal::groupPutOfSize<group>(dest, val, bytes, pe, qpId);                                                   \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemPutSizeImmNbi##S(SymmetricObject dest, uint64_t destOffset, const void* val,          \
                                                  uint64_t bytes, int pe, int qpId = 0) {                              \
        internal::groupPutOfSize<group>(dest.at<char>(destOffset), val, bytes, pe, qpId);                              \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemPutTypeImmNbi##S(T* dest, T value, int pe, int qpId = 0) {                            \
        internal::groupPutImmediate<group>(dest, internal::bitsOf(value), sizeof(T), pe, qpId);                        \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemPutTypeImmNbi##S(SymmetricObject dest, uint64_t destOffset, T value, int pe,          \
                                                  int qpId = 0) {                                                      \
        internal::groupPutImmediate<group>(dest.at<T>(destOffset), internal::bitsOf(value), sizeof(T), pe, qpId);      \
    }                                                                                                                  \
    /* val points at the operand of 1, 2, 4 or 8 bytes. */                                                             \
    MORI_DEVICE_INLINE void ShmemAtomicSizeNonFetch##S(void* dest, const void* val, uint64_t bytes, AtomicType op,     \
                                                       int pe, int qpId = 0) {                                         \
        internal::groupAtomicOfSize<group>(dest, val, bytes, op, pe, qpId);                                            \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemAtomicSizeNonFetch##S(SymmetricObject dest, uint64_t destOffset, const void* val,     \
                                                       uint64_t bytes, AtomicType op, int pe, int qpId = 0) {          \
        internal::groupAtomicOfSize<group>(dest.at<char>(destOffset), val, bytes, op, pe, qpId);                       \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemAtomicTypeNonFetch##S(T* dest, T value, AtomicType op, int pe, int qpId = 0) {        \
        internal::groupAtomic<group>(dest, value, T{}, op, pe, qpId);                                                  \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemAtomicTypeNonFetch##S(SymmetricObject dest, uint64_t destOffset, T value,             \
                                                       AtomicType op, int pe, int qpId = 0) {                          \
        internal::groupAtomic<group>(dest.at<T>(destOffset), value, T{}, op, pe, qpId);                                \
    }                                                                                                                  \
    /* All threads of the group get what was there before. */                                                          \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE T ShmemAtomicTypeFetch##S(T* dest, T value, T compare, AtomicType op, int pe, int qpId = 0) {   \
        return internal::groupAtomic<group>(dest, value, compare, op, pe, qpId);                                       \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE T ShmemAtomicTypeFetch##S(SymmetricObject dest, uint64_t destOffset, T value, T compare,        \
                                                 AtomicType op, int pe, int qpId = 0) {                                \
        return internal::groupAtomic<group>(dest.at<T>(destOffset), value, compare, op, pe, qpId);                     \
    }
MORI_SHMEM_WORD(Thread, Group::thread)
MORI_SHMEM_WORD(Warp, Group::warp)
MORI_SHMEM_WORD(, Group::thread)
#undef MORI_SHMEM_WORD

// ---- the same by the types' names ----

#define MORI_SHMEM_WORD_TYPED(Name, T, S)                                                                              \
    MORI_DEVICE_INLINE void ShmemPut##Name##ImmNbi##S(T* dest, T value, int pe, int qpId = 0) {                        \
        ShmemPutTypeImmNbi##S<T>(dest, value, pe, qpId);                                                               \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemPut##Name##ImmNbi##S(SymmetricObject dest, uint64_t destOffset, T value, int pe,      \
                                                      int qpId = 0) {                                                  \
        ShmemPutTypeImmNbi##S<T>(dest, destOffset, value, pe, qpId);                                                   \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemAtomic##Name##NonFetch##S(T* dest, T value, AtomicType op, int pe, int qpId = 0) {    \
        ShmemAtomicTypeNonFetch##S<T>(dest, value, op, pe, qpId);                                                      \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemAtomic##Name##NonFetch##S(SymmetricObject dest, uint64_t destOffset, T value,         \
                                                           AtomicType op, int pe, int qpId = 0) {                      \
        ShmemAtomicTypeNonFetch##S<T>(dest, destOffset, value, op, pe, qpId);                                          \
    }                                                                                                                  \
    MORI_DEVICE_INLINE T ShmemAtomic##Name##Fetch##S(T* dest, T value, T compare, AtomicType op, int pe,               \
                                                     int qpId = 0) {                                                   \
        return ShmemAtomicTypeFetch##S<T>(dest, value, compare, op, pe, qpId);                                         \
    }                                                                                                                  \
    MORI_DEVICE_INLINE T ShmemAtomic##Name##Fetch##S(SymmetricObject dest, uint64_t destOffset, T value, T compare,    \
                                                     AtomicType op, int pe, int qpId = 0) {                            \
        return ShmemAtomicTypeFetch##S<T>(dest, destOffset, value, compare, op, pe, qpId);                             \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void Shmem##Name##AtomicAdd##S(T* dest, T value, int pe, int qpId = 0) {                        \
        ShmemAtomicTypeNonFetch##S<T>(dest, value, AMO_ADD, pe, qpId);                                                 \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void Shmem##Name##AtomicAdd##S(SymmetricObject dest, uint64_t destOffset, T value, int pe,      \
                                                      int qpId = 0) {                                                  \
        ShmemAtomicTypeNonFetch##S<T>(dest, destOffset, value, AMO_ADD, pe, qpId);                                     \
    }                                                                                                                  \
    MORI_DEVICE_INLINE T Shmem##Name##AtomicFetchAdd##S(T* dest, T value, int pe, int qpId = 0) {                      \
        return ShmemAtomicTypeFetch##S<T>(dest, value, 0, AMO_FETCH_ADD, pe, qpId);                                    \
    }                                                                                                                  \
    MORI_DEVICE_INLINE T Shmem##Name##AtomicFetchAdd##S(SymmetricObject dest, uint64_t destOffset, T value, int pe,    \
                                                        int qpId = 0) {                                                \
        return ShmemAtomicTypeFetch##S<T>(dest, destOffset, value, 0, AMO_FETCH_ADD, pe, qpId);                        \
    }

#define MORI_SHMEM_TYPE(Name, T)                                                                                       \
    MORI_SHMEM_WORD_TYPED(Name, T, Thread)                                                                             \
    MORI_SHMEM_WORD_TYPED(Name, T, Warp)                                                                               \
    /* Both wait on this PE's own memory. What was put before the value came is seen after. */                         \
    MORI_DEVICE_INLINE void Shmem##Name##WaitUntilEquals(T* addr, T value) {                                           \
        internal::waitUntil(addr, value, [](T seen, T wanted) { return seen == wanted; });                             \
    }                                                                                                                  \
    MORI_DEVICE_INLINE T Shmem##Name##WaitUntilGreaterThan(T* addr, T value) {                                         \
        return internal::waitUntil(addr, value, [](T seen, T wanted) { return seen > wanted; });                       \
    }

MORI_SHMEM_TYPE(Uint8, uint8_t)
MORI_SHMEM_TYPE(Int8, int8_t)
MORI_SHMEM_TYPE(Schar, signed char)
MORI_SHMEM_TYPE(Uint16, uint16_t)
MORI_SHMEM_TYPE(Int16, int16_t)
MORI_SHMEM_TYPE(Uint32, uint32_t)
MORI_SHMEM_TYPE(Int32, int32_t)
MORI_SHMEM_TYPE(Uint64, uint64_t)
MORI_SHMEM_TYPE(Int64, int64_t)
MORI_SHMEM_TYPE(Long, long)
MORI_SHMEM_TYPE(Ulong, unsigned long)
#undef MORI_SHMEM_TYPE
#undef MORI_SHMEM_WORD_TYPED

}  // namespace mori::shmem
