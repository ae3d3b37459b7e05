// SPDX-License-Identifier: MIT
/// Operations for PEs that a NIC of this GPU's own reaches: the kernel posts puts, gets and signals that are set to the NIC's queue. Atomics, and
/// memory that the NIC does not know, are the proxy's, as a NIC's atomics are none towards those of the GPU whose memory it is.
#pragma once

#include "mori/nic/device.hpp"
#include "mori/shmem/remote.hpp"

namespace mori::shmem {

/// Tells a NIC's status from a proxy's in an Outcome and in a report.
constexpr uint64_t kOfNic = uint64_t(1) << 32;

namespace internal {

constexpr nic::Provider kNic = nic::Provider::mlx5;

MORI_DEVICE_INLINE uint64_t ofNic(uint64_t status) { return status != nic::kOk ? kOfNic | status : 0; }

/// What has been posted to the NIC is done at the PE.
MORI_DEVICE_APART uint64_t settle(const nic::Channel& channel) { return ofNic(nic::quiet<kNic>(channel)); }

MORI_DEVICE_APART uint64_t postTo(const nic::Channel& channel, const nic::Work& work) {
    return ofNic(nic::post<kNic, nic::Group::thread>(channel, work).status);
}

/// A put or get in as many entries as its bytes take.
MORI_DEVICE_INLINE uint64_t moveBy(const nic::Channel& channel, const NicPeer& peer, const RemoteOp& op, nic::Kind kind) {
    uint64_t status = 0;
    for (uint64_t done = 0; done < op.bytes && status == 0; done += nic::kMostBytes) {
        const uint64_t left = op.bytes - done;
        status = postTo(channel, nic::moving(kind, peer.theirs, op.symmetric - peer.mine.addr + done, peer.mine, op.local - peer.mine.addr + done,
                                             left < nic::kMostBytes ? left : nic::kMostBytes));
    }
    return status;
}

/// Whether it is a write of the operand and nothing else.
MORI_DEVICE_INLINE bool sets(uint32_t op) { return op == AMO_SET || op == AMO_SIGNAL || op == AMO_SIGNAL_SET; }

/// A signal that is set, or a set: behind what the proxy was given before, and what the NIC was, which writes in order.
MORI_DEVICE_INLINE uint64_t setBy(const nic::Channel& channel, const NicPeer& peer, const RemoteOp& op, const proxy::Queue& other) {
    const bool moves = op.kind == RemoteKind::putSignal;
    uint64_t status = proxy::quiet<proxy::Group::thread>(other, uint32_t(op.pe));
    if (status == 0 && moves) {
        status = moveBy(channel, peer, op, nic::Kind::write);
    }
    if (status != 0) {
        return status;
    }
    const uint64_t at = moves ? op.signal : op.symmetric;
    return postTo(channel, nic::writeValue(peer.theirs, at - peer.mine.addr, op.value, moves ? 8 : op.bytes));
}

MORI_DEVICE_INLINE nic::Channel channelTo(const State& own, const NicPeer& peer, int pe) {
    return {reinterpret_cast<nic::Queue*>(peer.queue), own.waitLimit, nullptr, uint32_t(own.myPe), uint32_t(pe)};
}

MORI_DEVICE_APART Outcome byNic(const State& own, const RemoteOp& op, const NicPeer& peer) {
    const nic::Channel channel = channelTo(own, peer, op.pe);
    const proxy::Queue& other = *reinterpret_cast<const proxy::Queue*>(peer.proxy);
    const bool moves = op.kind == RemoteKind::put || op.kind == RemoteKind::get || op.kind == RemoteKind::putSignal;
    const bool known = !moves || op.bytes == 0 || op.local - peer.mine.addr < peer.mine.bytes;
    if (known && op.kind == RemoteKind::put) {
        return {0, moveBy(channel, peer, op, nic::Kind::write)};
    }
    if (known && op.kind == RemoteKind::get) {
        return {0, moveBy(channel, peer, op, nic::Kind::read)};
    }
    if (op.kind == RemoteKind::immediate) {
        return {0, postTo(channel, nic::writeValue(peer.theirs, op.symmetric - peer.mine.addr, op.value, op.bytes))};
    }
    if (known && sets(op.op) && (op.kind == RemoteKind::putSignal || op.kind == RemoteKind::atomic)) {
        return {0, setBy(channel, peer, op, other)};
    }
    if (op.kind == RemoteKind::quiet || op.kind == RemoteKind::putSignal || op.op == AMO_SIGNAL_ADD) {
        if (const uint64_t status = settle(channel)) {  // the proxy's signal is to come after all of it
            return {0, status};
        }
    }
    return byProxy(op, other, own.heap);
}

}  // namespace internal
}  // namespace mori::shmem
