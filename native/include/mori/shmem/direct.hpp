// SPDX-License-Identifier: MIT
/// Operations for PEs that a NIC of this GPU's own reaches: the kernel posts puts, gets and signals that are set to the NIC's queue. Atomics, and
/// memory that the NIC does not know, are the proxy's, as a NIC's atomics are none towards those of the GPU whose memory it is.
#pragma once

#include "mori/nic/device.hpp"
#include "mori/shmem/remote.hpp"

namespace mori::shmem::internal {

constexpr nic::Provider kNic = nic::Provider::mlx5;

/// Tells a NIC's status from a proxy's in a report.
constexpr uint64_t kOfNic = uint64_t(1) << 32;

MORI_DEVICE_APART void giveUpNic(const RemoteOp& op, uint64_t status) {
    fail(reinterpret_cast<const void*>(op.symmetric), 0, kOfNic | status, op.pe);
}

/// What has been posted to the NIC is done at the PE.
MORI_DEVICE_APART void settle(const nic::Channel& channel, const RemoteOp& op) {
    const uint64_t status = nic::quiet<kNic>(channel);
    if (status != nic::kOk) {
        giveUpNic(op, status);
    }
}

MORI_DEVICE_APART void postTo(const nic::Channel& channel, const RemoteOp& op, const nic::Work& work) {
    const nic::Posted posted = nic::post<kNic, nic::Group::thread>(channel, work);
    if (posted.status != nic::kOk) {
        giveUpNic(op, posted.status);
    }
}

/// A put or get in as many entries as its bytes take.
MORI_DEVICE_INLINE void moveBy(const nic::Channel& channel, const NicPeer& peer, const RemoteOp& op, nic::Kind kind) {
    for (uint64_t done = 0; done < op.bytes; done += nic::kMostBytes) {
        const uint64_t left = op.bytes - done;
        postTo(channel, op,
               nic::moving(kind, peer.theirs, op.symmetric - peer.mine.addr + done, peer.mine, op.local - peer.mine.addr + done,
                           left < nic::kMostBytes ? left : nic::kMostBytes));
    }
}

/// Whether it is a write of the operand and nothing else.
MORI_DEVICE_INLINE bool sets(uint32_t op) { return op == AMO_SET || op == AMO_SIGNAL || op == AMO_SIGNAL_SET; }

MORI_DEVICE_APART uint64_t byNic(const RemoteOp& op, const NicPeer& peer) {
    const State own = state();
    const nic::Channel channel{reinterpret_cast<nic::Queue*>(peer.queue), own.waitLimit, nullptr, uint32_t(own.myPe), uint32_t(op.pe)};
    const proxy::Queue& other = *reinterpret_cast<const proxy::Queue*>(peer.proxy);
    const bool moves = op.kind == RemoteKind::put || op.kind == RemoteKind::get || op.kind == RemoteKind::putSignal;
    const bool known = !moves || op.bytes == 0 || op.local - peer.mine.addr < peer.mine.bytes;
    if (op.kind == RemoteKind::quiet) {
        settle(channel, op);
        return byProxy(op, other);
    }
    if (known && op.kind == RemoteKind::put) {
        moveBy(channel, peer, op, nic::Kind::write);
        return 0;
    }
    if (known && op.kind == RemoteKind::get) {
        moveBy(channel, peer, op, nic::Kind::read);
        return 0;
    }
    if (op.kind == RemoteKind::immediate) {
        postTo(channel, op, nic::writeValue(peer.theirs, op.symmetric - peer.mine.addr, op.value, op.bytes));
        return 0;
    }
    if (known && sets(op.op) && (op.kind == RemoteKind::putSignal || op.kind == RemoteKind::atomic)) {
        // Behind what the proxy was given before, and what the NIC was, which writes in order.
        RemoteOp before = op;
        before.kind = RemoteKind::quiet;
        byProxy(before, other);
        if (op.kind == RemoteKind::putSignal) {
            moveBy(channel, peer, op, nic::Kind::write);
        }
        const uint64_t at = op.kind == RemoteKind::putSignal ? op.signal : op.symmetric;
        postTo(channel, op, nic::writeValue(peer.theirs, at - peer.mine.addr, op.value, op.kind == RemoteKind::putSignal ? 8 : op.bytes));
        return 0;
    }
    if (op.kind == RemoteKind::putSignal || op.op == AMO_SIGNAL_ADD) {
        settle(channel, op);  // the proxy's signal is to come after all of it
    }
    return byProxy(op, other);
}

/// mori_shmem_remote: how a PE is reached its entry of State.peers says.
MORI_DEVICE_INLINE uint64_t byNetwork(const RemoteOp& op) {
    const State own = state();
    const uint64_t at = device::loadConstant(&own.peers[op.pe].heap);
    if (transportTo(own, op.pe) == Transport::nic) {
        return byNic(op, *reinterpret_cast<const NicPeer*>(at));
    }
    return byProxy(op, *reinterpret_cast<const proxy::Queue*>(at));
}

}  // namespace mori::shmem::internal

#if defined(MORI_DEVICE_CPU)
extern "C" __attribute__((weak, noinline)) uint64_t mori_shmem_remote(const mori::shmem::RemoteOp* op) {
#else
extern "C" __attribute__((device, weak, noinline)) uint64_t mori_shmem_remote(const mori::shmem::RemoteOp* op) {
#endif
    return mori::shmem::internal::byNetwork(*op);
}
