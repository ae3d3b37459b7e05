// SPDX-License-Identifier: MIT
/// Symmetric memory in kernels: put, get, atomics, signals, waits, order and barriers among PEs, by the names of the
/// GPU variants of OpenSHMEM. Include it in a kernel's source, and have the host run shmem_module_init on the module.
///
/// The suffix tells who calls: Thread, each thread for itself; Warp, all lanes of a warp for one operation; Block, all
/// threads of a block for one. Symmetric memory is named by this PE's address of it, or by an object and an offset, which
/// counts elements in typed calls. qpId picks a queue where the PE is reached by a network.
#pragma once

#include "mori/shmem/operations.hpp"

namespace mori::shmem {

/// A block of symmetric memory, by this PE's address.
struct SymmetricObject {
    void* local;
    uint64_t bytes;

    template <class T>
    MORI_DEVICE_INLINE T* at(uint64_t element) const {
        return static_cast<T*>(local) + element;
    }
};

MORI_DEVICE_INLINE int ShmemMyPe() { return internal::state().myPe; }
MORI_DEVICE_INLINE int ShmemNPes() { return internal::state().nPes; }

/// The address at which pe's copy can be loaded and stored from here; 0 if it cannot.
MORI_DEVICE_INLINE uint64_t ShmemPtrP2p(uint64_t symmetric, int pe) {
    return uint64_t(internal::reach(reinterpret_cast<void*>(symmetric), pe));
}
MORI_DEVICE_INLINE uint64_t ShmemPtrP2p(uint64_t symmetric, int myPe, int pe) {
    return myPe == ShmemMyPe() ? ShmemPtrP2p(symmetric, pe) : 0;
}
MORI_DEVICE_INLINE uint64_t ShmemPtrP2p(SymmetricObject object, uint64_t offset, int pe) {
    return ShmemPtrP2p(uint64_t(object.at<char>(offset)), pe);
}

// ---- put and get ----

#define MORI_SHMEM_MOVE(S, group)                                                                                      \
    MORI_DEVICE_INLINE void ShmemPutMemNbi##S(void* dest, const void* source, uint64_t bytes, int pe, int qpId = 0) {   \
        internal::put<group>(dest, source, bytes, pe, qpId);                                                           \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemPutMemNbi##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,       \
                                              uint64_t sourceOffset, uint64_t bytes, int pe, int qpId = 0) {           \
        internal::put<group>(dest.at<char>(destOffset), source.at<char>(sourceOffset), bytes, pe, qpId);               \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemPutTypeNbi##S(T* dest, const T* source, uint64_t count, int pe, int qpId = 0) {       \
        internal::put<group>(dest, source, count * sizeof(T), pe, qpId);                                               \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemPutTypeNbi##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,      \
                                               uint64_t sourceOffset, uint64_t count, int pe, int qpId = 0) {          \
        internal::put<group>(dest.at<T>(destOffset), source.at<T>(sourceOffset), count * sizeof(T), pe, qpId);         \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemGetMemNbi##S(void* dest, const void* source, uint64_t bytes, int pe, int qpId = 0) {   \
        internal::get<group>(dest, source, bytes, pe, qpId);                                                           \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemGetMemNbi##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,       \
                                              uint64_t sourceOffset, uint64_t bytes, int pe, int qpId = 0) {           \
        internal::get<group>(dest.at<char>(destOffset), source.at<char>(sourceOffset), bytes, pe, qpId);               \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemGetMem##S(void* dest, const void* source, uint64_t bytes, int pe, int qpId = 0) {      \
        internal::getAndWait<group>(dest, source, bytes, pe, qpId);                                                    \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemGetMem##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,          \
                                           uint64_t sourceOffset, uint64_t bytes, int pe, int qpId = 0) {              \
        internal::getAndWait<group>(dest.at<char>(destOffset), source.at<char>(sourceOffset), bytes, pe, qpId);        \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemGetTypeNbi##S(T* dest, const T* source, uint64_t count, int pe, int qpId = 0) {       \
        internal::get<group>(dest, source, count * sizeof(T), pe, qpId);                                               \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemGetTypeNbi##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,      \
                                               uint64_t sourceOffset, uint64_t count, int pe, int qpId = 0) {          \
        internal::get<group>(dest.at<T>(destOffset), source.at<T>(sourceOffset), count * sizeof(T), pe, qpId);         \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemGetType##S(T* dest, const T* source, uint64_t count, int pe, int qpId = 0) {          \
        internal::getAndWait<group>(dest, source, count * sizeof(T), pe, qpId);                                        \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ShmemGetType##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,         \
                                            uint64_t sourceOffset, uint64_t count, int pe, int qpId = 0) {             \
        internal::getAndWait<group>(dest.at<T>(destOffset), source.at<T>(sourceOffset), count * sizeof(T), pe, qpId);  \
    }                                                                                                                  \
    /* The payload is at the peer before signalOp, AMO_SIGNAL_SET or AMO_SIGNAL_ADD, is done there. */                 \
    template <bool onlyOneSignal = true>                                                                               \
    MORI_DEVICE_INLINE void ShmemPutMemNbiSignal##S(void* dest, const void* source, uint64_t bytes, void* signalDest,  \
                                                    uint64_t signalValue, AtomicType signalOp, int pe, int qpId = 0) { \
        internal::putSignal<group, onlyOneSignal>(dest, source, bytes, static_cast<uint64_t*>(signalDest),             \
                                                  signalValue, signalOp, pe, qpId);                                    \
    }                                                                                                                  \
    template <bool onlyOneSignal = true>                                                                               \
    MORI_DEVICE_INLINE void ShmemPutMemNbiSignal##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source, \
                                                    uint64_t sourceOffset, uint64_t bytes, SymmetricObject signalDest, \
                                                    uint64_t signalOffset, uint64_t signalValue, AtomicType signalOp,  \
                                                    int pe, int qpId = 0) {                                            \
        internal::putSignal<group, onlyOneSignal>(                                                                     \
            dest.at<char>(destOffset), source.at<char>(sourceOffset), bytes,                                           \
            reinterpret_cast<uint64_t*>(signalDest.at<char>(signalOffset)), signalValue, signalOp, pe, qpId);          \
    }                                                                                                                  \
    template <class T, bool onlyOneSignal = true>                                                                      \
    MORI_DEVICE_INLINE void ShmemPutTypeNbiSignal##S(T* dest, const T* source, uint64_t count, void* signalDest,       \
                                                     uint64_t signalValue, AtomicType signalOp, int pe,                \
                                                     int qpId = 0) {                                                   \
        internal::putSignal<group, onlyOneSignal>(dest, source, count * sizeof(T), static_cast<uint64_t*>(signalDest), \
                                                  signalValue, signalOp, pe, qpId);                                    \
    }

MORI_SHMEM_MOVE(Thread, Group::thread)
MORI_SHMEM_MOVE(Warp, Group::warp)
MORI_SHMEM_MOVE(Block, Group::block)
#undef MORI_SHMEM_MOVE

#define MORI_SHMEM_MOVE_TYPED(Name, T, S)                                                                              \
    MORI_DEVICE_INLINE void ShmemPut##Name##Nbi##S(T* dest, const T* source, uint64_t count, int pe, int qpId = 0) {   \
        ShmemPutTypeNbi##S<T>(dest, source, count, pe, qpId);                                                          \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemPut##Name##Nbi##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,  \
                                                   uint64_t sourceOffset, uint64_t count, int pe, int qpId = 0) {      \
        ShmemPutTypeNbi##S<T>(dest, destOffset, source, sourceOffset, count, pe, qpId);                                \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemGet##Name##Nbi##S(T* dest, const T* source, uint64_t count, int pe, int qpId = 0) {   \
        ShmemGetTypeNbi##S<T>(dest, source, count, pe, qpId);                                                          \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemGet##Name##S(T* dest, const T* source, uint64_t count, int pe, int qpId = 0) {        \
        ShmemGetType##S<T>(dest, source, count, pe, qpId);                                                             \
    }                                                                                                                  \
    template <bool onlyOneSignal = true>                                                                               \
    MORI_DEVICE_INLINE void ShmemPut##Name##NbiSignal##S(T* dest, const T* source, uint64_t count, void* signalDest,   \
                                                         uint64_t signalValue, AtomicType signalOp, int pe,            \
                                                         int qpId = 0) {                                               \
        ShmemPutTypeNbiSignal##S<T, onlyOneSignal>(dest, source, count, signalDest, signalValue, signalOp, pe, qpId);  \
    }
#define MORI_SHMEM_TYPE(Name, T)           \
    MORI_SHMEM_MOVE_TYPED(Name, T, Thread) \
    MORI_SHMEM_MOVE_TYPED(Name, T, Warp)   \
    MORI_SHMEM_MOVE_TYPED(Name, T, Block)

MORI_SHMEM_TYPE(Uint8, uint8_t)
MORI_SHMEM_TYPE(Int8, int8_t)
MORI_SHMEM_TYPE(Schar, signed char)
MORI_SHMEM_TYPE(Uint16, uint16_t)
MORI_SHMEM_TYPE(Int16, int16_t)
MORI_SHMEM_TYPE(Uint32, uint32_t)
MORI_SHMEM_TYPE(Int32, int32_t)
MORI_SHMEM_TYPE(Uint64, uint64_t)
MORI_SHMEM_TYPE(Int64, int64_t)
MORI_SHMEM_TYPE(Float, float)
MORI_SHMEM_TYPE(Double, double)
#undef MORI_SHMEM_TYPE
#undef MORI_SHMEM_MOVE_TYPED

// ---- values from registers ----

/// Puts size bytes, 1, 2, 4 or 8, that lie at val.
MORI_DEVICE_INLINE void ShmemPutSizeImmNbiThread(void* dest, const void* val, uint64_t size, int pe, int qpId = 0) {
    uint64_t value = 0;
    for (uint64_t i = 0; i < size && i < 8; i++) {
        value |= uint64_t(static_cast<const uint8_t*>(val)[i]) << 8 * i;
    }
    internal::putImmediate(dest, value, uint32_t(size < 8 ? size : 8), pe, qpId);
}
MORI_DEVICE_INLINE void ShmemPutSizeImmNbiWarp(void* dest, const void* val, uint64_t size, int pe, int qpId = 0) {
    if (device::laneInWarp() == 0) {
        ShmemPutSizeImmNbiThread(dest, val, size, pe, qpId);
    }
}

#define MORI_SHMEM_IMMEDIATE(Name, T)                                                                \
    MORI_DEVICE_INLINE void ShmemPut##Name##ImmNbiThread(T* dest, T value, int pe, int qpId = 0) {   \
        internal::putImmediate(dest, uint64_t(value), sizeof(T), pe, qpId);                          \
    }                                                                                                \
    MORI_DEVICE_INLINE void ShmemPut##Name##ImmNbiWarp(T* dest, T value, int pe, int qpId = 0) {     \
        if (device::laneInWarp() == 0) {                                                             \
            internal::putImmediate(dest, uint64_t(value), sizeof(T), pe, qpId);                      \
        }                                                                                            \
    }
MORI_SHMEM_IMMEDIATE(Uint8, uint8_t)
MORI_SHMEM_IMMEDIATE(Int8, int8_t)
MORI_SHMEM_IMMEDIATE(Schar, signed char)
MORI_SHMEM_IMMEDIATE(Uint16, uint16_t)
MORI_SHMEM_IMMEDIATE(Int16, int16_t)
MORI_SHMEM_IMMEDIATE(Uint32, uint32_t)
MORI_SHMEM_IMMEDIATE(Int32, int32_t)
MORI_SHMEM_IMMEDIATE(Uint64, uint64_t)
MORI_SHMEM_IMMEDIATE(Int64, int64_t)
#undef MORI_SHMEM_IMMEDIATE

// ---- atomics, waits ----

#define MORI_SHMEM_ATOMIC(Name, T, S, group)                                                                         \
    MORI_DEVICE_INLINE void ShmemAtomic##Name##NonFetch##S(T* dest, T value, AtomicType op, int pe, int qpId = 0) {  \
        internal::groupAtomic<group>(dest, value, T(0), op, pe, qpId);                                               \
    }                                                                                                                \
    MORI_DEVICE_INLINE T ShmemAtomic##Name##Fetch##S(T* dest, T value, T compare, AtomicType op, int pe,             \
                                                     int qpId = 0) {                                                 \
        return internal::groupAtomic<group>(dest, value, compare, op, pe, qpId);                                     \
    }                                                                                                                \
    MORI_DEVICE_INLINE void Shmem##Name##AtomicAdd##S(T* dest, T value, int pe, int qpId = 0) {                      \
        internal::groupAtomic<group>(dest, value, T(0), AMO_ADD, pe, qpId);                                          \
    }                                                                                                                \
    MORI_DEVICE_INLINE T Shmem##Name##AtomicFetchAdd##S(T* dest, T value, int pe, int qpId = 0) {                    \
        return internal::groupAtomic<group>(dest, value, T(0), AMO_FETCH_ADD, pe, qpId);                             \
    }
#define MORI_SHMEM_WORD(Name, T)                                                              \
    MORI_SHMEM_ATOMIC(Name, T, Thread, Group::thread)                                         \
    MORI_SHMEM_ATOMIC(Name, T, Warp, Group::warp)                                             \
    /* Both wait on this PE's own memory. What was put before the value came is seen after. */ \
    MORI_DEVICE_INLINE void Shmem##Name##WaitUntilEquals(T* addr, T value) {                  \
        internal::waitUntil(addr, value, [](T seen, T wanted) { return seen == wanted; });    \
    }                                                                                         \
    MORI_DEVICE_INLINE T Shmem##Name##WaitUntilGreaterThan(T* addr, T value) {                \
        return internal::waitUntil(addr, value, [](T seen, T wanted) { return seen > wanted; }); \
    }
MORI_SHMEM_WORD(Uint32, uint32_t)
MORI_SHMEM_WORD(Int32, int32_t)
MORI_SHMEM_WORD(Uint64, uint64_t)
MORI_SHMEM_WORD(Int64, int64_t)
#undef MORI_SHMEM_WORD
#undef MORI_SHMEM_ATOMIC

/// bytes is 4 or 8, and val points at the operand.
MORI_DEVICE_INLINE void ShmemAtomicSizeNonFetchThread(void* dest, const void* val, uint64_t bytes, AtomicType op, int pe,
                                                      int qpId = 0) {
    if (bytes == 4) {
        internal::atomic(static_cast<uint32_t*>(dest), *static_cast<const uint32_t*>(val), 0u, op, pe, qpId);
    } else {
        internal::atomic(static_cast<uint64_t*>(dest), *static_cast<const uint64_t*>(val), uint64_t(0), op, pe, qpId);
    }
}

// ---- order ----

/// All that this thread has put and got is complete: with all PEs, one, or over one queue to it.
MORI_DEVICE_INLINE void ShmemQuietThread() { internal::quiet(-1, -1); }
MORI_DEVICE_INLINE void ShmemQuietThread(int pe) { internal::quiet(pe, -1); }
MORI_DEVICE_INLINE void ShmemQuietThread(int pe, int qpId) { internal::quiet(pe, qpId); }

/// What this thread put before is seen before what it puts after.
MORI_DEVICE_INLINE void ShmemFenceThread() { internal::quiet(-1, -1); }
MORI_DEVICE_INLINE void ShmemFenceThread(int pe) { internal::quiet(pe, -1); }
MORI_DEVICE_INLINE void ShmemFenceThread(int pe, int qpId) { internal::quiet(pe, qpId); }

/// One thread of each PE calls it. All that the PEs did before is seen by all after.
MORI_DEVICE_INLINE void ShmemBarrierAllThread() { internal::barrierAll(); }

/// All threads of one block of each PE call it.
MORI_DEVICE_INLINE void ShmemBarrierAllBlock() {
    device::blockSync();
    if (device::threadInBlock() == 0) {
        internal::barrierAll();
    }
    device::blockSync();
}

}  // namespace mori::shmem
