// SPDX-License-Identifier: MIT
/// Atomic accesses: loads and stores of 1, 2, 4 and 8 bytes, changes of 4 and 8. Scope and order are in the call:
///
///     atomicStore<Scope::system, Order::release>(flag, value);
///
/// Order::relaxed promises that the word is whole and nothing about other memory: use it only to synchronise execution,
/// not data.
#pragma once

#include "mori/device/fence.hpp"

namespace mori::device {

enum class Order { relaxed, acquire, release, acqRel };

/// Of a store behind a fence, with which it is a release. CPUs' race detectors want to be told so.
#if defined(MORI_DEVICE_CPU)
constexpr Order kBehindFence = Order::release;
#else
constexpr Order kBehindFence = Order::relaxed;
#endif

#if defined(MORI_DEVICE_CUDA)

// The order's and the scope's names are part of the instruction, so each pair is spelled out; the type's width picks the
// register, which may be wider than what is loaded or stored.
#define MORI_PTX_LOAD(order, scope)                                                                                   \
    if constexpr (sizeof(T) == 1) {                                                                                   \
        asm volatile("ld." order "." scope ".u8 %0, [%1];" : "=r"(word4) : "l"(address) : "memory");                  \
    } else if constexpr (sizeof(T) == 2) {                                                                            \
        asm volatile("ld." order "." scope ".u16 %0, [%1];" : "=r"(word4) : "l"(address) : "memory");                 \
    } else if constexpr (sizeof(T) == 4) {                                                                            \
        asm volatile("ld." order "." scope ".u32 %0, [%1];" : "=r"(word4) : "l"(address) : "memory");                 \
    } else {                                                                                                          \
        asm volatile("ld." order "." scope ".u64 %0, [%1];" : "=l"(word8) : "l"(address) : "memory");                 \
    }
#define MORI_PTX_STORE(order, scope)                                                                                  \
    if constexpr (sizeof(T) == 1) {                                                                                   \
        asm volatile("st." order "." scope ".u8 [%0], %1;" ::"l"(address), "r"(uint32_t(value)) : "memory");          \
    } else if constexpr (sizeof(T) == 2) {                                                                            \
        asm volatile("st." order "." scope ".u16 [%0], %1;" ::"l"(address), "r"(uint32_t(value)) : "memory");         \
    } else if constexpr (sizeof(T) == 4) {                                                                            \
        asm volatile("st." order "." scope ".u32 [%0], %1;" ::"l"(address), "r"(uint32_t(value)) : "memory");         \
    } else {                                                                                                          \
        asm volatile("st." order "." scope ".u64 [%0], %1;" ::"l"(address), "l"(uint64_t(value)) : "memory");         \
    }
#define MORI_PTX_ADD(order, scope)                                                                                    \
    if constexpr (sizeof(T) == 4) {                                                                                   \
        asm volatile("atom.add." order "." scope ".u32 %0, [%1], %2;"                                                 \
                     : "=r"(word4)                                                                                    \
                     : "l"(address), "r"(uint32_t(value))                                                             \
                     : "memory");                                                                                     \
    } else {                                                                                                          \
        asm volatile("atom.add." order "." scope ".u64 %0, [%1], %2;"                                                 \
                     : "=l"(word8)                                                                                    \
                     : "l"(address), "l"(uint64_t(value))                                                             \
                     : "memory");                                                                                     \
    }
#define MORI_PTX_CAS(order, scope)                                                                                    \
    if constexpr (sizeof(T) == 4) {                                                                                   \
        asm volatile("atom.cas." order "." scope ".b32 %0, [%1], %2, %3;"                                             \
                     : "=r"(word4)                                                                                    \
                     : "l"(address), "r"(uint32_t(expected)), "r"(uint32_t(value))                                    \
                     : "memory");                                                                                     \
    } else {                                                                                                          \
        asm volatile("atom.cas." order "." scope ".b64 %0, [%1], %2, %3;"                                             \
                     : "=l"(word8)                                                                                    \
                     : "l"(address), "l"(uint64_t(expected)), "l"(uint64_t(value))                                    \
                     : "memory");                                                                                     \
    }
#define MORI_PTX_SCOPES(op, order)                    \
    if constexpr (scope == Scope::block) {            \
        op(order, "cta")                              \
    } else if constexpr (scope == Scope::device) {    \
        op(order, "gpu")                              \
    } else {                                          \
        op(order, "sys")                              \
    }
#define MORI_PTX_ORDERS(op)                           \
    if constexpr (order == Order::relaxed) {          \
        MORI_PTX_SCOPES(op, "relaxed")                \
    } else if constexpr (order == Order::acquire) {   \
        MORI_PTX_SCOPES(op, "acquire")                \
    } else if constexpr (order == Order::release) {   \
        MORI_PTX_SCOPES(op, "release")                \
    } else {                                          \
        MORI_PTX_SCOPES(op, "acq_rel")                \
    }

#else

namespace internal {

constexpr int builtinOrder(Order order) {
    return order == Order::relaxed   ? __ATOMIC_RELAXED
           : order == Order::acquire ? __ATOMIC_ACQUIRE
           : order == Order::release ? __ATOMIC_RELEASE
                                     : __ATOMIC_ACQ_REL;
}

#if defined(MORI_DEVICE_HIP)
constexpr int builtinScope(Scope scope) {
    return scope == Scope::block    ? __HIP_MEMORY_SCOPE_WORKGROUP
           : scope == Scope::device ? __HIP_MEMORY_SCOPE_AGENT
                                    : __HIP_MEMORY_SCOPE_SYSTEM;
}
#endif

}  // namespace internal

#endif

/// ``order`` is relaxed or acquire.
template <Scope scope, Order order, class T>
MORI_DEVICE_INLINE T atomicLoad(const T* address) {
    static_assert(sizeof(T) <= 8);
    static_assert(order == Order::relaxed || order == Order::acquire);
#if defined(MORI_DEVICE_CUDA)
    [[maybe_unused]] uint32_t word4 = 0;
    [[maybe_unused]] uint64_t word8 = 0;
    if constexpr (order == Order::relaxed) {
        MORI_PTX_SCOPES(MORI_PTX_LOAD, "relaxed")
    } else {
        MORI_PTX_SCOPES(MORI_PTX_LOAD, "acquire")
    }
    return sizeof(T) == 8 ? T(word8) : T(word4);
#elif defined(MORI_DEVICE_HIP)
    return __hip_atomic_load(address, internal::builtinOrder(order), internal::builtinScope(scope));
#else
    return __atomic_load_n(address, internal::builtinOrder(order));
#endif
}

/// ``order`` is relaxed or release.
template <Scope scope, Order order, class T>
MORI_DEVICE_INLINE void atomicStore(T* address, T value) {
    static_assert(sizeof(T) <= 8);
    static_assert(order == Order::relaxed || order == Order::release);
#if defined(MORI_DEVICE_CUDA)
    if constexpr (order == Order::relaxed) {
        MORI_PTX_SCOPES(MORI_PTX_STORE, "relaxed")
    } else {
        MORI_PTX_SCOPES(MORI_PTX_STORE, "release")
    }
#elif defined(MORI_DEVICE_HIP)
    __hip_atomic_store(address, value, internal::builtinOrder(order), internal::builtinScope(scope));
#else
    __atomic_store_n(address, value, internal::builtinOrder(order));
#endif
}

/// Returns what was there before.
template <Scope scope, Order order, class T>
MORI_DEVICE_INLINE T atomicAdd(T* address, T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
#if defined(MORI_DEVICE_CUDA)
    [[maybe_unused]] uint32_t word4 = 0;
    [[maybe_unused]] uint64_t word8 = 0;
    MORI_PTX_ORDERS(MORI_PTX_ADD)
    return sizeof(T) == 4 ? T(word4) : T(word8);
#elif defined(MORI_DEVICE_HIP)
    return __hip_atomic_fetch_add(address, value, internal::builtinOrder(order), internal::builtinScope(scope));
#else
    return __atomic_fetch_add(address, value, internal::builtinOrder(order));
#endif
}

/// Puts ``value`` where ``expected`` is, and returns what was there before.
template <Scope scope, Order order, class T>
MORI_DEVICE_INLINE T atomicCompareSwap(T* address, T expected, T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
#if defined(MORI_DEVICE_CUDA)
    [[maybe_unused]] uint32_t word4 = 0;
    [[maybe_unused]] uint64_t word8 = 0;
    MORI_PTX_ORDERS(MORI_PTX_CAS)
    return sizeof(T) == 4 ? T(word4) : T(word8);
#else
    // A failed exchange orders what a load can order.
    constexpr int failed =
        order == Order::acquire || order == Order::acqRel ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;
#if defined(MORI_DEVICE_HIP)
    __hip_atomic_compare_exchange_strong(address, &expected, value, internal::builtinOrder(order), failed,
                                         internal::builtinScope(scope));
#else
    __atomic_compare_exchange_n(address, &expected, value, false, internal::builtinOrder(order), failed);
#endif
    return expected;
#endif
}

#if defined(MORI_DEVICE_CUDA)
#undef MORI_PTX_LOAD
#undef MORI_PTX_STORE
#undef MORI_PTX_ADD
#undef MORI_PTX_CAS
#undef MORI_PTX_SCOPES
#undef MORI_PTX_ORDERS
#endif

}  // namespace mori::device
