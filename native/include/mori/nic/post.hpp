// SPDX-License-Identifier: MIT
/// How many threads post to one queue: each takes a place in the ring, all write their entries at once, then they publish in the
/// ring's order. The doorbell is rung by one at a time, for all who have published by then.
#pragma once

#include "mori/nic/poll.hpp"

namespace mori::nic {
namespace internal {

/// Takes blocks of the ring and waits until they are free. False: the queue is dead, now or before.
template <Provider provider>
MORI_DEVICE_INLINE bool reserve(const Channel& channel, uint32_t blocks, uint64_t& first) {
    using namespace device;
    Queue& queue = *channel.queue;
    if (statusOf(queue) != kOk) {
        return false;
    }
    const uint64_t room = NIC<provider>::room(queue);
    first = atomicAdd<Scope::device, Order::relaxed>(&queue.reserved, uint64_t(blocks));
    MORI_NIC_STEP();
    uint64_t completed = 0;
    bool dead = false;
    const bool ended = pollUntil(channel.limit, [&] {
        completed = atomicLoad<Scope::device, Order::acquire>(&queue.completed);
        if (first + blocks - completed <= room) {
            return true;
        }
        dead = statusOf(queue) != kOk;
        if (dead) {
            return true;
        }
        poll<provider>(queue);
        return false;
    });
    if (!ended) {  // the blocks are taken and will never be written: who comes after them would wait, too
        report(channel, &queue.completed, first + blocks - room, completed);
        fail(queue, kStalled);
    }
    return ended && !dead;
}

/// Tells the NIC of what is published, unless a thread is at it: that one will see it. Each poster counts itself; who rings
/// leaves when nobody has come since it looked.
template <Provider provider>
MORI_DEVICE_INLINE void ring(Queue& queue) {
    using namespace device;
    if (atomicAdd<Scope::device, Order::acqRel>(&queue.bells, uint64_t(1)) != 0) {
        return;
    }
    uint64_t came = 1;
    uint64_t rung = 0;
    for (;;) {
        const uint64_t upto = atomicLoad<Scope::device, Order::acquire>(&queue.published);
        MORI_NIC_STEP();
        if (upto != rung) {
            NIC<provider>::ring(queue, upto);
            rung = upto;
        }
        const uint64_t seen = atomicCompareSwap<Scope::device, Order::acqRel>(&queue.bells, came, uint64_t(0));
        if (seen == came) {
            return;
        }
        came = seen;
    }
}

/// Waits for its turn, and lets the NIC have the blocks. Returns whether it came.
template <Provider provider>
MORI_DEVICE_INLINE bool publish(const Channel& channel, uint64_t first, uint32_t blocks) {
    using namespace device;
    Queue& queue = *channel.queue;
    uint64_t published = 0;
    bool mine = false;
    const bool ended = pollUntil(channel.limit, [&] {
        published = atomicLoad<Scope::device, Order::acquire>(&queue.published);
        if (published == first) {
            NIC<provider>::admit(queue, first, blocks);
            atomicStore<Scope::device, Order::release>(&queue.published, first + blocks);
            MORI_NIC_STEP();
            mine = true;
            return true;
        }
        return statusOf(queue) != kOk;
    });
    if (!ended) {
        report(channel, &queue.published, first, published);
        fail(queue, kStalled);
    }
    if (mine) {
        ring<provider>(queue);
    }
    return mine;
}

template <Provider provider>
MORI_DEVICE_INLINE void writeEntry(Queue& queue, uint64_t first, const Work& work) {
    using namespace device;
    NIC<provider>::encode(queue, first, work);
    atomicStore<Scope::device, Order::relaxed>(keptOf(queue, first), NIC<provider>::kept(queue, work));
    MORI_NIC_STEP();
}

/// One thread posts. It is much code, and what it does takes longer than a call.
template <Provider provider>
MORI_DEVICE_NOINLINE Posted postOne(const Channel& channel, const Work& work) {
    Queue& queue = *channel.queue;
    const uint32_t blocks = NIC<provider>::blocks(work);
    if (blocks == 0) {
        return {0, kRefused};
    }
    uint64_t first = 0;
    if (reserve<provider>(channel, blocks, first)) {
        writeEntry<provider>(queue, first, work);
        if (publish<provider>(channel, first, blocks)) {
            return {first + blocks, kOk};
        }
    }
    return {0, statusOf(queue)};
}

}  // namespace internal
}  // namespace mori::nic
