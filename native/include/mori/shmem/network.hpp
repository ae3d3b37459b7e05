// SPDX-License-Identifier: MIT
/// Operations for PEs that loads and stores do not reach, by whatever reaches them: how the host says for each PE, in State::peers. Nothing here ends a
/// kernel; who calls is told. A State may be any that the host has filled in: kernels that several Worlds share have theirs by an argument.
#pragma once

#include "mori/shmem/direct.hpp"

namespace mori::shmem {

/// Does an operation, or posts it. One thread calls it for its group; what that has stored before is what is sent.
MORI_DEVICE_APART Outcome carry(const State& own, const RemoteOp& op) {
    const bool known = op.pe >= 0 && op.pe < own.nPes && op.symmetric - own.heap < own.heapBytes;
    const Transport transport = known ? internal::transportTo(own, op.pe) : Transport::none;
    if (!internal::byNetwork(transport)) {
        return {0, proxy::kRefused};
    }
    const uint64_t at = device::loadConstant(&own.peers[op.pe].heap);
    if (transport == Transport::nic) {
        return internal::byNic(own, op, *reinterpret_cast<const NicPeer*>(at));
    }
    return internal::byProxy(op, *reinterpret_cast<const proxy::Queue*>(at), own.heap);
}

/// Puts bytes to a PE's copy of a symmetric address. 0, or why it could not be posted.
MORI_DEVICE_INLINE uint64_t putTo(const State& own, int pe, uint64_t symmetric, uint64_t local, uint64_t bytes) {
    return carry(own, {RemoteKind::put, pe, 0, 0, local, symmetric, bytes, 0, 0, 0}).status;
}

/// The same, and then sets a symmetric word of 8 bytes there, behind all puts to the PE before it.
MORI_DEVICE_INLINE uint64_t putSignalTo(const State& own, int pe, uint64_t symmetric, uint64_t local, uint64_t bytes, uint64_t signal, uint64_t value) {
    return carry(own, {RemoteKind::putSignal, pe, 0, AMO_SIGNAL_SET, local, symmetric, bytes, value, 0, signal}).status;
}

/// Why a PE takes no more, as far as is known now; 0 if it does. Who waits for a PE's answer looks now and then, since completions tell, and nobody else
/// may be reading them.
MORI_DEVICE_APART uint64_t troubleWith(const State& own, int pe) {
    const Transport transport = internal::transportTo(own, pe);
    if (!internal::byNetwork(transport)) {
        return proxy::kRefused;
    }
    uint64_t at = device::loadConstant(&own.peers[pe].heap);
    if (transport == Transport::nic) {
        const NicPeer& peer = *reinterpret_cast<const NicPeer*>(at);
        nic::Queue& queue = *reinterpret_cast<nic::Queue*>(peer.queue);
        nic::poll<internal::kNic>(queue);
        if (const uint64_t status = internal::ofNic(nic::internal::statusOf(queue))) {
            return status;
        }
        at = peer.proxy;
    }
    const proxy::Queue& queue = *reinterpret_cast<const proxy::Queue*>(at);
    return device::atomicLoad<device::Scope::system, device::Order::relaxed>(&queue.status[pe]);
}

}  // namespace mori::shmem
