// SPDX-License-Identifier: MIT
/// Completions: any thread that waits reads them, one at a time, for all.
///
/// No thread of a warp may hold what another of the same warp waits for across a point where they meet again, since lanes of some
/// GPUs run in step. So whatever ends a wait is done inside the wait's own look.
#pragma once

#include "mori/device/poll.hpp"
#include "mori/nic/nic.hpp"

namespace mori::nic {

/// A queue as a thread uses it.
struct Channel {
    Queue* queue;
    uint64_t limit;              ///< nanoseconds that a wait may last
    device::WaitReport* report;  ///< where the first wait that gives up tells what for; null: nowhere
    uint32_t rank;               ///< who waits, for the report
    uint32_t peer;               ///< for whom
};

/// What came of a post: the count of blocks that are done when its work is, for quiet(); or why there is none.
struct Posted {
    uint64_t upto;
    uint64_t status;
};

namespace internal {

MORI_DEVICE_INLINE uint64_t statusOf(const Queue& queue) {
    return device::atomicLoad<device::Scope::device, device::Order::relaxed>(&queue.status);
}

/// Only the first error is kept.
MORI_DEVICE_INLINE void fail(Queue& queue, uint64_t status) {
    device::atomicCompareSwap<device::Scope::device, device::Order::relaxed>(&queue.status, kOk, status);
}

MORI_DEVICE_INLINE void report(const Channel& channel, const uint64_t* word, uint64_t expected, uint64_t seen) {
    if (channel.report != nullptr) {
        device::reportWait(channel.report, word, expected, seen, channel.rank, channel.peer);
    }
}

/// As many as a thread reads before it lets others see how far work is done.
constexpr uint32_t kMostPolled = 32;

/// For who holds pollLock.
template <Provider provider>
MORI_DEVICE_NOINLINE void readCompletions(Queue& queue) {
    using namespace device;
    const bool collapsed = (told(queue.flags) & kCollapsed) != 0;
    const uint64_t before = atomicLoad<Scope::device, Order::relaxed>(&queue.polled);
    uint64_t completed = atomicLoad<Scope::device, Order::relaxed>(&queue.completed);
    uint64_t polled = before;
    do {
        const Completion found = NIC<provider>::completion(queue, polled, completed);
        if (!found.there) {
            break;
        }
        if (found.status != kOk) {
            fail(queue, found.status);
        }
        completed = found.upto;
        polled++;
    } while (!collapsed && polled - before < kMostPolled);
    if (polled == before) {
        return;
    }
    // Entries go back to the NIC before posters may have it write new ones.
    if (!collapsed) {
        NIC<provider>::consume(queue, polled);
        MORI_NIC_STEP();
        atomicStore<Scope::device, Order::relaxed>(&queue.polled, polled);
    }
    atomicStore<Scope::device, Order::release>(&queue.completed, completed);
}

}  // namespace internal

/// Reads the completions that there are, unless another thread is at it.
template <Provider provider>
MORI_DEVICE_INLINE void poll(Queue& queue) {
    using namespace device;
    if (atomicCompareSwap<Scope::device, Order::acquire>(&queue.pollLock, uint64_t(0), uint64_t(1)) != 0) {
        return;
    }
    internal::readCompletions<provider>(queue);
    atomicStore<Scope::device, Order::release>(&queue.pollLock, uint64_t(0));
}

/// Waits until the queue's blocks before ``upto`` are done. Then what their reads and atomic operations brought is seen, and local
/// memory may be written again. Returns kOk, the queue's first error, or kTimedOut.
template <Provider provider>
MORI_DEVICE_NOINLINE uint64_t quiet(const Channel& channel, uint64_t upto) {
    using namespace device;
    Queue& queue = *channel.queue;
    uint64_t completed = 0;
    uint64_t status = kOk;
    const bool ended = pollUntil(channel.limit, [&] {
        completed = atomicLoad<Scope::device, Order::acquire>(&queue.completed);
        status = internal::statusOf(queue);
        if (completed >= upto || status != kOk) {
            return true;
        }
        poll<provider>(queue);
        return false;
    });
    if (!ended) {
        internal::report(channel, &queue.completed, upto, completed);
        return kTimedOut;
    }
    return status;
}

template <Provider provider>
MORI_DEVICE_INLINE uint64_t quiet(const Channel& channel, const Posted& posted) {
    return posted.status != kOk ? posted.status : quiet<provider>(channel, posted.upto);
}

/// Waits for all that has been posted, by any thread of the GPU that this one knows of.
template <Provider provider>
MORI_DEVICE_INLINE uint64_t quiet(const Channel& channel) {
    using namespace device;
    return quiet<provider>(channel, atomicLoad<Scope::device, Order::acquire>(&channel.queue->published));
}

}  // namespace mori::nic
