// SPDX-License-Identifier: MIT
/// What the kernels of combine have in common where some ranks are on other hosts.
#pragma once

#include "mori/ep/between.hpp"
#include "mori/ep/sums.hpp"

namespace mori::ep {

namespace internal {

/// All blocks have summed: the last one tells everybody.
MORI_DEVICE_INLINE void endCombine(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t number, uint32_t& shared) {
    if (!isLastBlock<Scope::system>(op, 1, shared) || warpInBlock() != 0 || warpBallot(isBroken(op)) != 0) {
        return;
    }
    const uint64_t pulled = flagValue(number, 0);
    raiseAt(op, hosts, op.regions.pulled, pulled, kEveryone);
    if (laneInWarp() == 0) {
        op.progress->combines = number;
        if (args.clearReceived != 0) {
            *op.received = 0;
        }
    }
    if (args.input == nullptr) {  // the caller may fill CombineIn anew as soon as this ends
        awaitRanks(op, hosts, op.regions.pulled, pulled, kEveryone, true);
    }
}

/// The phases of a combine between hosts. send reports whether the op is not broken.
template <class Send, class Receive>
MORI_DEVICE_INLINE void combineBetweenHosts(const HostsCombineArgs& args, Summing& shared, Send send, Receive receive) {
    const Op& op = *args.call.op;
    const Hosts& hosts = *args.hosts;
    if (blockIsBroken(op, shared.word)) {
        return;
    }
    const uint64_t number = op.progress->combines + 1;
    if ((args.call.phases & kSend) != 0 && !send(op, hosts, args.call, number, shared.word)) {
        return;
    }
    if ((args.call.phases & kRecv) != 0) {
        receive(op, hosts, args.call, number, shared);
    }
}

}  // namespace internal
}  // namespace mori::ep
