// SPDX-License-Identifier: MIT
/// Put, get, and put with a signal, by the names that programs call: see device.hpp. A signal's offset counts bytes.
#pragma once

#include "mori/shmem/object.hpp"
#include "mori/shmem/operations.hpp"

namespace mori::shmem {

/// A transfer in all its forms: of bytes or elements, between pointers or objects.
#define MORI_SHMEM_TRANSFER(ofBytes, ofType, transfer)                                                                 \
    MORI_DEVICE_INLINE void ofBytes(void* dest, const void* source, uint64_t bytes, int pe, int qpId = 0) {            \
        transfer(dest, source, bytes, pe, qpId);                                                                       \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ofBytes(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,                 \
                                    uint64_t sourceOffset, uint64_t bytes, int pe, int qpId = 0) {                     \
        transfer(dest.at<char>(destOffset), source.at<char>(sourceOffset), bytes, pe, qpId);                           \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ofType(T* dest, const T* source, uint64_t count, int pe, int qpId = 0) {                   \
        transfer(dest, source, count * sizeof(T), pe, qpId);                                                           \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MORI_DEVICE_INLINE void ofType(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,                  \
                                   uint64_t sourceOffset, uint64_t count, int pe, int qpId = 0) {                      \
        transfer(dest.at<T>(destOffset), source.at<T>(sourceOffset), count * sizeof(T), pe, qpId);                     \
    }

#define MORI_SHMEM_MOVE(S, group)                                                                                      \
    MORI_SHMEM_TRANSFER(ShmemPutMemNbi##S, ShmemPutTypeNbi##S, internal::put<group>)                                   \
    MORI_SHMEM_TRANSFER(ShmemGetMemNbi##S, ShmemGetTypeNbi##S, internal::get<group>)                                   \
    MORI_SHMEM_TRANSFER(ShmemGetMem##S, ShmemGetType##S, internal::getAndWait<group>)                                  \
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
    }                                                                                                                  \
    template <class T, bool onlyOneSignal = true>                                                                      \
    MORI_DEVICE_INLINE void ShmemPutTypeNbiSignal##S(SymmetricObject dest, uint64_t destOffset,                        \
                                                     SymmetricObject source, uint64_t sourceOffset, uint64_t count,    \
                                                     SymmetricObject signalDest, uint64_t signalOffset,                \
                                                     uint64_t signalValue, AtomicType signalOp, int pe,                \
                                                     int qpId = 0) {                                                   \
        internal::putSignal<group, onlyOneSignal>(dest.at<T>(destOffset), source.at<T>(sourceOffset),                  \
                                                  count * sizeof(T), signalDest.at<uint64_t>(0) + signalOffset / 8,    \
                                                  signalValue, signalOp, pe, qpId);                                    \
    }

MORI_SHMEM_MOVE(Thread, Group::thread)
MORI_SHMEM_MOVE(Warp, Group::warp)
MORI_SHMEM_MOVE(Block, Group::block)
#undef MORI_SHMEM_MOVE
#undef MORI_SHMEM_TRANSFER

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
    MORI_DEVICE_INLINE void ShmemGet##Name##Nbi##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,  \
                                                   uint64_t sourceOffset, uint64_t count, int pe, int qpId = 0) {      \
        ShmemGetTypeNbi##S<T>(dest, destOffset, source, sourceOffset, count, pe, qpId);                                \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemGet##Name##S(T* dest, const T* source, uint64_t count, int pe, int qpId = 0) {        \
        ShmemGetType##S<T>(dest, source, count, pe, qpId);                                                             \
    }                                                                                                                  \
    MORI_DEVICE_INLINE void ShmemGet##Name##S(SymmetricObject dest, uint64_t destOffset, SymmetricObject source,       \
                                              uint64_t sourceOffset, uint64_t count, int pe, int qpId = 0) {           \
        ShmemGetType##S<T>(dest, destOffset, source, sourceOffset, count, pe, qpId);                                   \
    }                                                                                                                  \
    template <bool onlyOneSignal = true>                                                                               \
    MORI_DEVICE_INLINE void ShmemPut##Name##NbiSignal##S(T* dest, const T* source, uint64_t count, void* signalDest,   \
                                                         uint64_t signalValue, AtomicType signalOp, int pe,            \
                                                         int qpId = 0) {                                               \
        ShmemPutTypeNbiSignal##S<T, onlyOneSignal>(dest, source, count, signalDest, signalValue, signalOp, pe, qpId);  \
    }                                                                                                                  \
    template <bool onlyOneSignal = true>                                                                               \
    MORI_DEVICE_INLINE void ShmemPut##Name##NbiSignal##S(SymmetricObject dest, uint64_t destOffset,                    \
                                                         SymmetricObject source, uint64_t sourceOffset,                \
                                                         uint64_t count, SymmetricObject signalDest,                   \
                                                         uint64_t signalOffset, uint64_t signalValue,                  \
                                                         AtomicType signalOp, int pe, int qpId = 0) {                  \
        ShmemPutTypeNbiSignal##S<T, onlyOneSignal>(dest, destOffset, source, sourceOffset, count, signalDest,          \
                                                   signalOffset, signalValue, signalOp, pe, qpId);                     \
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

}  // namespace mori::shmem
