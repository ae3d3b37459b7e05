// SPDX-License-Identifier: MIT
/// Which memory an operation of symmetric memory touches, and what is done where loads and stores do not reach it.
#pragma once

#include "mori/device/copy.hpp"
#include "mori/device/poll.hpp"
#include "mori/shmem/network.hpp"

#if defined(MORI_DEVICE_CPU)
#define MORI_DEVICE_SYMBOL
#else
#define MORI_DEVICE_SYMBOL __attribute__((device))
#endif

extern "C" {

#if !defined(MORI_DEVICE_CPU)
// nvcc's whole-program mode has one source in a module, and refuses inline variables.
#if defined(__NVCC__) && !defined(__CUDACC_RDC__)
#define MORI_SHMEM_ONCE
#else
#define MORI_SHMEM_ONCE inline
#endif
/// The host finds it by name in each module that includes this header, and fills it in.
MORI_SHMEM_ONCE MORI_DEVICE_SYMBOL __attribute__((used)) mori::shmem::State mori_shmem_state;
#undef MORI_SHMEM_ONCE
#endif

/// Carries out an operation for a PE whose transport is remote; one thread calls it for its group. What it returns is the
/// old value, for an atomic that has one. There is a weak one below, so a module may link its own.
MORI_DEVICE_SYMBOL uint64_t mori_shmem_remote(const mori::shmem::RemoteOp* op);
}

namespace mori::shmem {

/// Which threads do one operation together.
enum class Group { thread, warp, block };

namespace internal {

#if defined(MORI_DEVICE_CPU)
/// Blocks of one process stand in for PEs, so each thread is told its state.
inline thread_local State* self = nullptr;
MORI_DEVICE_INLINE const State& symbol() { return *self; }
#else
MORI_DEVICE_INLINE const State& symbol() { return mori_shmem_state; }
#endif

/// What the host told this module. After a fence an ordinary load would go to memory again, and each operation begins
/// with several.
MORI_DEVICE_INLINE State state() {
    const State& told = symbol();
    return {device::loadConstant(&told.version),   device::loadConstant(&told.myPe),
            device::loadConstant(&told.nPes),      device::loadConstant(&told.far),
            device::loadConstant(&told.heap),      device::loadConstant(&told.heapBytes),
            device::loadConstant(&told.sync),      device::loadConstant(&told.waitLimit),
            device::loadConstant(&told.peers),     device::loadConstant(&told.report)};
}

template <Group group>
MORI_DEVICE_INLINE device::Place place() {
    if constexpr (group == Group::thread) {
        return {0, 1};
    } else if constexpr (group == Group::warp) {
        return {device::laneInWarp(), device::kWarpSize};
    } else {
        return {device::threadInBlock(), device::blockSize()};
    }
}

/// What the threads of the group did before is seen by all of them after.
template <Group group>
MORI_DEVICE_INLINE void meet() {
    if constexpr (group == Group::warp) {
        device::warpSync();
    } else if constexpr (group == Group::block) {
        device::blockSync();
    }
}

/// Ends the kernel; the host finds in the report what could not be done.
MORI_DEVICE_INLINE void fail(const void* address, uint64_t expected, uint64_t seen, int pe) {
    const State own = state();
    if (own.report != nullptr) {
        device::reportWait(own.report, address, expected, seen, uint32_t(own.myPe), uint32_t(pe));
    }
    device::trap();
}

/// A PE's memory, for loads and stores from here. An operation looks a PE up once, for its payload and its signal: that
/// takes two loads, one after the other.
struct Reached {
    uint64_t heap;   ///< where the PE's heap begins here
    uint64_t own;    ///< where this PE's begins
    uint64_t bytes;  ///< 0 where loads and stores do not reach the PE, and for one that does not exist

    /// The PE's copy of a symmetric address; null where there is none.
    MORI_DEVICE_INLINE char* at(const void* symmetric) const {
        const uint64_t offset = uint64_t(symmetric) - own;
        return offset < bytes ? reinterpret_cast<char*>(heap + offset) : nullptr;
    }
};

MORI_DEVICE_INLINE Reached reach(const State& own, int pe) {
    if (pe == own.myPe) {
        return {own.heap, own.heap, own.heapBytes};
    }
    if (pe < 0 || pe >= own.nPes) {
        return {0, 0, 0};
    }
    const uint64_t heap = device::loadConstant(&own.peers[pe].heap);
    return {heap, own.heap, transportTo(own, pe) == Transport::p2p ? own.heapBytes : 0};
}
MORI_DEVICE_INLINE Reached reach(int pe) { return reach(state(), pe); }

/// For what reach() refused: either the transport does it, or nobody can.
MORI_DEVICE_INLINE uint64_t remote(const RemoteOp& op) {
    const State own = state();
    const bool known = op.pe >= 0 && op.pe < own.nPes && op.symmetric - own.heap < own.heapBytes;
    if (!known || !byNetwork(transportTo(own, op.pe))) {
        fail(reinterpret_cast<const void*>(op.symmetric), uint64_t(Transport::remote),
             known ? uint64_t(transportTo(own, op.pe)) : 0, op.pe);
        return 0;
    }
    return mori_shmem_remote(&op);
}

/// Waits on this PE's own memory; a wait that outlasts the limit ends the kernel, and its report tells what for.
template <class Ready>
MORI_DEVICE_INLINE void waitFor(const void* address, uint64_t expected, int pe, Ready ready) {
    uint64_t seen = 0;
    if (!device::pollUntil(state().waitLimit, [&] { return ready(seen); })) {
        fail(address, expected, seen, pe);
    }
}

/// What mori_shmem_remote does: what the host knows of a failure is in the queue; the report names the PE and the status.
MORI_DEVICE_INLINE uint64_t carryOrFail(const RemoteOp& op) {
    const Outcome got = carry(state(), op);
    if (got.status != 0) {
        fail(reinterpret_cast<const void*>(op.symmetric), 0, got.status, op.pe);
    }
    return got.old;
}

}  // namespace internal
}  // namespace mori::shmem

#if defined(MORI_DEVICE_CPU)
extern "C" __attribute__((weak, noinline)) uint64_t mori_shmem_remote(const mori::shmem::RemoteOp* op) {
#else
extern "C" __attribute__((device, weak, noinline)) uint64_t mori_shmem_remote(const mori::shmem::RemoteOp* op) {
#endif
    return mori::shmem::internal::carryOrFail(*op);
}
