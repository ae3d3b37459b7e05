// SPDX-License-Identifier: MIT
/// What a family of NICs must say of itself, and the steps of a queue's protocol where tests hold threads up.
#pragma once

#include "mori/device/atomic.hpp"
#include "mori/device/copy.hpp"
#include "mori/nic/queue.hpp"
#include "mori/nic/work.hpp"

/// Between any two steps whose order a NIC sees. Tests on the CPU put delays here.
#if !defined(MORI_NIC_STEP)
#define MORI_NIC_STEP()
#endif

namespace mori::nic {

/// What the host has told of a queue: one load a kernel, however many fences there are between uses.
template <class T>
MORI_DEVICE_INLINE T told(const T& field) {
    return device::loadConstant(&field);
}

MORI_DEVICE_INLINE Annex& annexOf(Queue& queue) { return *reinterpret_cast<Annex*>(&queue + 1); }
MORI_DEVICE_INLINE const Annex& annexOf(const Queue& queue) { return *reinterpret_cast<const Annex*>(&queue + 1); }

/// A completion as a poller reads it.
struct Completion {
    bool there;
    uint64_t upto;    ///< blocks of the send queue that are done, at least
    uint64_t status;  ///< kOk, or vendor syndrome << 8 | syndrome
};

/// A family of NICs, chosen when the code is compiled. It has, all static:
///
///     kMostInline                                               bytes that an entry takes along
///     uint32_t blocks(const Work&)                              of the ring, that its entry takes; 0 if no entry can tell of it
///     uint32_t kept(const Queue&, const Work&)                  what Queue::kept has of the entry
///     uint64_t room(const Queue&)                               blocks that may be under way at once
///     void encode(const Queue&, uint64_t first, const Work&)    writes the entry, without any order
///     void admit(Queue&, uint64_t first, uint32_t blocks)       writes what goes by the ring's order: one poster at a time, in that
///                                                               order, calls it before it publishes
///     void ring(const Queue&, uint64_t upto)                    makes entries visible and tells the NIC of them
///     Completion completion(const Queue&, uint64_t polled, uint64_t completed)    acquires what the work has done
///     void consume(const Queue&, uint64_t polled)               gives entries of the completion queue back
template <Provider provider>
struct NIC;

namespace internal {

/// A word of what is kept of entries, by the index of the entry's first block.
MORI_DEVICE_INLINE uint32_t* keptOf(const Queue& queue, uint64_t first) {
    return reinterpret_cast<uint32_t*>(told(queue.kept)) + (first & ((uint64_t(1) << told(queue.sqLog)) - 1));
}

/// The bytes of a number, or of memory, for entries that carry them: four of them, of which those past the last are 0.
template <class At>
MORI_DEVICE_INLINE uint32_t wordOf(uint32_t from, uint32_t bytes, At at) {
    uint32_t word = 0;
    MORI_DEVICE_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        word |= uint32_t(from + i < bytes ? at(from + i) : 0) << i * 8;
    }
    return word;
}

}  // namespace internal

}  // namespace mori::nic
