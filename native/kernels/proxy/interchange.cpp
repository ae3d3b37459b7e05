// SPDX-License-Identifier: MIT
// The GPU data interchange over a proxy: one GPU fills a buffer, sends it to another and waits until it is there; the other looks
// at every byte. Both kernels run for all rounds.
#include "mori/proxy/device.hpp"
#include "mori/proxy/kernels.hpp"

namespace {

using mori::device::Order;
using mori::device::Scope;
using mori::proxy::InterchangeSide;

constexpr uint32_t kWords = 1;
constexpr uint64_t kCome = 0;
constexpr uint64_t kLooked = 8;

MORI_DEVICE_INLINE uint8_t valueOf(const InterchangeSide& side, uint64_t round) { return uint8_t(side.value + (side.rounds - round)); }

/// One thread waits for a word to reach a round; all of the block know whether it did, and see what was sent before.
MORI_DEVICE_INLINE bool comes(const InterchangeSide& side, const uint64_t* word, uint64_t round) {
    const uint64_t limit = side.queue->waitLimit;
    const uint64_t came = mori::proxy::internal::lead<mori::proxy::Group::block>([&] {
        return uint64_t(mori::device::pollUntil(
            limit, [&] { return mori::device::atomicLoad<Scope::system, Order::acquire>(word) >= round; }));
    });
    mori::device::fence<Scope::system>();
    return came != 0;
}

/// Ends a side.
MORI_DEVICE_INLINE void end(const InterchangeSide& side, uint64_t start, uint64_t rounds, uint32_t status) {
    if (mori::device::threadInBlock() == 0) {
        side.outcome->nanoseconds = mori::device::nanoseconds() - start;
        side.outcome->rounds = rounds;
        mori::device::atomicStore<Scope::system, Order::release>(&side.outcome->status, status);
    }
}

}  // namespace

/// One block. It fills its buffer, puts it with a signal, polls until the put has ended, and waits until the peer has looked.
extern "C" MORI_DEVICE_KERNEL(1024) void mori_proxy_interchange_send(InterchangeSide side) {
    using namespace mori::proxy;
    const uint64_t start = mori::device::nanoseconds();
    uint8_t* bytes = reinterpret_cast<uint8_t*>(side.local);
    for (uint64_t round = 1; round <= side.rounds; round++) {
        for (uint64_t i = mori::device::threadInBlock(); i < side.bytes; i += mori::device::blockSize()) {
            bytes[i] = valueOf(side, round);
        }
        mori::device::fence<Scope::system>();
        const Signal come{kWords, kCome, Atomic::set, round};
        const uint64_t ticket = putSignal<Group::block>(*side.queue, side.peer, 0, side.local, side.bytes, come);
        uint32_t status = wait<Group::block>(*side.queue, ticket, side.peer);
        if (status == 0 && !comes(side, &side.words[kLooked / 8], round)) {
            status = kTimeout;
        }
        if (status != 0) {
            return end(side, start, round - 1, status);
        }
    }
    end(side, start, side.rounds, 0);
}

/// One block. It waits for each round's signal, looks at every byte, and tells the sender.
extern "C" MORI_DEVICE_KERNEL(1024) void mori_proxy_interchange_receive(InterchangeSide side) {
    using namespace mori::proxy;
    const uint64_t start = mori::device::nanoseconds();
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(side.local);
    for (uint64_t round = 1; round <= side.rounds; round++) {
        if (!comes(side, &side.words[kCome / 8], round)) {
            return end(side, start, round - 1, kTimeout);
        }
        uint64_t wrong = 0;
        for (uint64_t i = mori::device::threadInBlock(); i < side.bytes; i += mori::device::blockSize()) {
            wrong += mori::device::loadOnce<uint8_t>(&bytes[i]) != valueOf(side, round);
        }
        if (wrong != 0) {
            mori::device::atomicAdd<Scope::system, Order::relaxed>(&side.outcome->wrong, wrong);
        }
        const uint64_t ticket = putValue<Group::block>(*side.queue, side.peer, kLooked, round, 8, kWords);
        const uint32_t status = wait<Group::block>(*side.queue, ticket, side.peer);
        if (status != 0) {
            return end(side, start, round, status);
        }
    }
    end(side, start, side.rounds, 0);
}
