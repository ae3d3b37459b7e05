// SPDX-License-Identifier: MIT
// Symmetric memory for kernels that are not C++: functions by C names, to link with what Triton and others generate. The
// names and arguments are those of mori.ir's table; where there is nothing to return they return 0.
#include "mori/shmem/device.hpp"

#if defined(MORI_DEVICE_CPU)
#define MORI_LIBRARY extern "C"
#define MORI_LIBRARY_SHARED
#else
#define MORI_LIBRARY extern "C" __attribute__((device, used))
// One body for all types: a copy is long, and each function of the library would have its own.
#define MORI_LIBRARY_SHARED __attribute__((device, noinline))
#endif

using namespace mori::shmem;

namespace {

template <class T>
MORI_DEVICE_INLINE T* at(uint64_t address) {
    return reinterpret_cast<T*>(address);
}

template <Group group>
MORI_LIBRARY_SHARED void put(uint64_t dest, uint64_t source, uint64_t bytes, int pe, int qp) {
    internal::put<group>(at<void>(dest), at<void>(source), bytes, pe, qp);
}

template <Group group>
MORI_LIBRARY_SHARED void get(uint64_t dest, uint64_t source, uint64_t bytes, int pe, int qp) {
    internal::get<group>(at<void>(dest), at<void>(source), bytes, pe, qp);
}

template <Group group>
MORI_LIBRARY_SHARED void getAndWait(uint64_t dest, uint64_t source, uint64_t bytes, int pe, int qp) {
    internal::getAndWait<group>(at<void>(dest), at<void>(source), bytes, pe, qp);
}

}  // namespace

// ---- who, where ----

MORI_LIBRARY int mori_shmem_my_pe() { return ShmemMyPe(); }
MORI_LIBRARY int mori_shmem_n_pes() { return ShmemNPes(); }
MORI_LIBRARY uint64_t mori_shmem_ptr_p2p(uint64_t dest, int myPe, int pe) { return ShmemPtrP2p(dest, myPe, pe); }
MORI_LIBRARY uint64_t mori_shmem_ptr(uint64_t dest, int pe) { return ShmemPtrP2p(dest, pe); }

// ---- order ----

#define MORI_LIBRARY_ORDER(name, Call)                         \
    MORI_LIBRARY int mori_shmem_##name() {                     \
        Call();                                                \
        return 0;                                              \
    }                                                          \
    MORI_LIBRARY int mori_shmem_##name##_pe(int pe) {          \
        Call(pe);                                              \
        return 0;                                              \
    }                                                          \
    MORI_LIBRARY int mori_shmem_##name##_pe_qp(int pe, int qp) { \
        Call(pe, qp);                                          \
        return 0;                                              \
    }
MORI_LIBRARY_ORDER(quiet_thread, ShmemQuietThread)
MORI_LIBRARY_ORDER(fence_thread, ShmemFenceThread)

MORI_LIBRARY int mori_shmem_barrier_all_thread() {
    ShmemBarrierAllThread();
    return 0;
}
MORI_LIBRARY int mori_shmem_barrier_all_block() {
    ShmemBarrierAllBlock();
    return 0;
}

// ---- put and get ----

#define MORI_LIBRARY_MOVE(name, call, group, size)                                                       \
    MORI_LIBRARY int mori_shmem_##name(uint64_t dest, uint64_t source, uint64_t count, int pe, int qp) { \
        call<group>(dest, source, count * (size), pe, qp);                                               \
        return 0;                                                                                        \
    }
#define MORI_LIBRARY_SCOPE(scope, group, type, size)                    \
    MORI_LIBRARY_MOVE(put##type##_nbi_##scope, put, group, size)        \
    MORI_LIBRARY_MOVE(get##type##_nbi_##scope, get, group, size)        \
    MORI_LIBRARY_MOVE(get##type##_##scope, getAndWait, group, size)
#define MORI_LIBRARY_TYPE(type, size)                      \
    MORI_LIBRARY_SCOPE(thread, Group::thread, type, size)  \
    MORI_LIBRARY_SCOPE(warp, Group::warp, type, size)      \
    MORI_LIBRARY_SCOPE(block, Group::block, type, size)
MORI_LIBRARY_TYPE(mem, 1)
MORI_LIBRARY_TYPE(_uint32, 4)
MORI_LIBRARY_TYPE(_uint64, 8)
MORI_LIBRARY_TYPE(_float, 4)
MORI_LIBRARY_TYPE(_double, 8)

#define MORI_LIBRARY_SIGNAL(scope, group)                                                                          \
    MORI_LIBRARY int mori_shmem_putmem_nbi_signal_##scope(uint64_t dest, uint64_t source, uint64_t bytes,          \
                                                          uint64_t signalDest, uint64_t signalValue, int signalOp, \
                                                          int pe, int qp) {                                        \
        internal::putSignal<group, true>(at<void>(dest), at<void>(source), bytes, at<uint64_t>(signalDest),        \
                                         signalValue, uint32_t(signalOp), pe, qp);                                 \
        return 0;                                                                                                  \
    }
MORI_LIBRARY_SIGNAL(thread, Group::thread)
MORI_LIBRARY_SIGNAL(warp, Group::warp)
MORI_LIBRARY_SIGNAL(block, Group::block)

// ---- values ----

MORI_LIBRARY int mori_shmem_put_size_imm_nbi_thread(uint64_t dest, uint64_t value, uint64_t bytes, int pe, int qp) {
    ShmemPutSizeImmNbiThread(at<void>(dest), at<void>(value), bytes, pe, qp);
    return 0;
}

#define MORI_LIBRARY_VALUE(name, T, Word)                                                      \
    MORI_LIBRARY int mori_shmem_##name##_p(uint64_t dest, T value, int pe, int qp) {           \
        internal::putImmediate(at<void>(dest), __builtin_bit_cast(Word, value), sizeof(T), pe, qp); \
        return 0;                                                                              \
    }
MORI_LIBRARY_VALUE(int32, int32_t, uint32_t)
MORI_LIBRARY_VALUE(int64, int64_t, uint64_t)
MORI_LIBRARY_VALUE(uint32, uint32_t, uint32_t)
MORI_LIBRARY_VALUE(uint64, uint64_t, uint64_t)
MORI_LIBRARY_VALUE(int, int, uint32_t)
MORI_LIBRARY_VALUE(float, float, uint32_t)
MORI_LIBRARY_VALUE(double, double, uint64_t)

// ---- atomics, waits ----

MORI_LIBRARY int mori_shmem_atomic_size_nonfetch_thread(uint64_t dest, uint64_t value, uint64_t bytes, int op, int pe,
                                                        int qp) {
    ShmemAtomicSizeNonFetchThread(at<void>(dest), at<void>(value), bytes, AtomicType(op), pe, qp);
    return 0;
}

#define MORI_LIBRARY_ATOMIC(name, T)                                                                             \
    MORI_LIBRARY int mori_shmem_atomic_##name##_nonfetch_thread(uint64_t dest, T value, int op, int pe, int qp) { \
        internal::atomic(at<T>(dest), value, T(0), uint32_t(op), pe, qp);                                        \
        return 0;                                                                                                \
    }                                                                                                            \
    MORI_LIBRARY T mori_shmem_atomic_##name##_fetch_thread(uint64_t dest, T value, T compare, int op, int pe,    \
                                                           int qp) {                                             \
        return internal::atomic(at<T>(dest), value, compare, uint32_t(op), pe, qp);                              \
    }                                                                                                            \
    MORI_LIBRARY int mori_shmem_##name##_atomic_add_thread(uint64_t dest, T value, int pe, int qp) {             \
        internal::atomic(at<T>(dest), value, T(0), AMO_ADD, pe, qp);                                             \
        return 0;                                                                                                \
    }                                                                                                            \
    MORI_LIBRARY T mori_shmem_##name##_atomic_fetch_add_thread(uint64_t dest, T value, int pe, int qp) {         \
        return internal::atomic(at<T>(dest), value, T(0), AMO_FETCH_ADD, pe, qp);                                \
    }
MORI_LIBRARY_ATOMIC(uint32, uint32_t)
MORI_LIBRARY_ATOMIC(uint64, uint64_t)
MORI_LIBRARY_ATOMIC(int64, int64_t)

#define MORI_LIBRARY_WAIT(name, Name, T)                                             \
    MORI_LIBRARY T mori_shmem_##name##_wait_until_greater_than(uint64_t addr, T value) { \
        return Shmem##Name##WaitUntilGreaterThan(at<T>(addr), value);                \
    }                                                                                \
    MORI_LIBRARY int mori_shmem_##name##_wait_until_equals(uint64_t addr, T value) { \
        Shmem##Name##WaitUntilEquals(at<T>(addr), value);                            \
        return 0;                                                                    \
    }
MORI_LIBRARY_WAIT(uint32, Uint32, uint32_t)
MORI_LIBRARY_WAIT(uint64, Uint64, uint64_t)
MORI_LIBRARY_WAIT(int32, Int32, int32_t)
MORI_LIBRARY_WAIT(int64, Int64, int64_t)
