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

/// A completion as a poller reads it.
struct Completion {
    bool there;
    bool mine;        ///< of the send queue: it tells of blocks
    uint16_t first;   ///< the low bits of the index of its entry's first block
    uint64_t status;  ///< kOk, or vendor syndrome << 8 | syndrome
};

/// A family of NICs, chosen when the code is compiled. It has, all static:
///
///     uint32_t blocks(const Work&)                          of the ring, that its entry takes; 0 if no entry can tell of it
///     void encode(const Queue&, uint64_t first, const Work&)    writes the entry, without any order
///     void ring(const Queue&, uint64_t upto)                    makes entries visible and tells the NIC of them
///     Completion completion(const Queue&, uint64_t polled)  acquires what the work has done
///     void consume(const Queue&, uint64_t polled)           gives entries of the completion queue back
template <Provider provider>
struct NIC;

}  // namespace mori::nic
