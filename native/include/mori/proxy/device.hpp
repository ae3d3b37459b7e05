// SPDX-License-Identifier: MIT
/// A GPU lets its host do its network work: put, get, put with a signal, and atomics over any network that the host has.
///
///     const uint64_t ticket = mori::proxy::put<Group::warp>(queue, pe, remote, local, bytes);
///     const uint32_t status = mori::proxy::wait<Group::warp>(queue, ticket, pe);   // 0, or why it failed
///
/// Posting does not wait, unless the ring is full. What the calling thread, or its warp or block, has stored before is what is
/// sent. wait and quiet end when the remote side has it, and are bounded by Queue.waitLimit; what a get has brought is seen by the
/// threads that waited. Puts to one PE are not ordered among each other, but a signal comes after its payload and after all
/// puts to its PE before it, and what follows a fence after all that came before it.
///
/// A PE that had an error takes no more: whatever is posted to it ends, and every wait for it says why.
#pragma once

#include "mori/device/pair.hpp"
#include "mori/device/poll.hpp"
#include "mori/proxy/layout.hpp"

namespace mori::proxy {

/// Which threads do one operation together; all of them call it, and all get what it returns.
enum class Group { thread, warp, block };

namespace internal {

using device::Order;
using device::Scope;

/// What the threads of the group did before is seen by who leads it.
template <Group group>
MORI_DEVICE_INLINE void meet() {
    if constexpr (group == Group::warp) {
        device::warpSync();
    } else if constexpr (group == Group::block) {
        device::blockSync();
    }
}

/// One thread of the group acts, and all get its answer.
template <Group group, class Act>
MORI_DEVICE_INLINE uint64_t lead(Act act) {
    meet<group>();
    if constexpr (group == Group::thread) {
        return act();
    } else if constexpr (group == Group::warp) {
        uint64_t answer = 0;
        if (device::laneInWarp() == 0) {
            answer = act();
        }
        answer = device::warpBroadcast(answer, 0);
        device::warpSync();  // what the leader has seen done is seen by all
        return answer;
    } else {
        MORI_DEVICE_SHARED(uint64_t, answer);
        if (device::threadInBlock() == 0) {
            answer = act();
        }
        device::blockSync();
        const uint64_t got = answer;
        device::blockSync();  // before the next use of the word
        return got;
    }
}

/// What the host says now, and remembers it for the others. It acquires what the host did before.
MORI_DEVICE_INLINE uint64_t look(const Queue& q) {
    const uint64_t told = device::atomicLoad<Scope::system, Order::acquire>(&q.board->ended);
    device::atomicStore<Scope::device, Order::release>(&q.state->ended, told);
    return told;
}

/// Whether commands up to a ticket have ended, by what was seen last. Tickets are counted from 1.
MORI_DEVICE_INLINE bool reached(uint64_t told, uint64_t ticket) { return (told & kEndedMask) >= ticket; }

/// Gives up, and says so if nobody has before.
MORI_DEVICE_INLINE uint32_t late(const Queue& q, uint64_t ticket, uint32_t pe) {
    const uint64_t seen = device::atomicLoad<Scope::system, Order::relaxed>(&q.board->ended) & kEndedMask;
    device::reportWait(&q.board->report, &q.board->ended, ticket, seen, 0, pe);
    return kTimeout;
}

/// Looks until commands up to the ticket have ended, the queue is closed, or the limit is over: then it returns false.
MORI_DEVICE_APART bool lookUntil(const Queue& q, uint64_t ticket, uint64_t* told) {
    return device::pollUntil(q.waitLimit, [&] {
        *told = look(q);
        return reached(*told, ticket) || (*told & kClosed) != 0;
    });
}

/// Waits until commands up to the ticket have ended. The host sets kTrouble before it counts a command that failed, so what was seen
/// earlier, and reaches the ticket, has it.
MORI_DEVICE_INLINE uint32_t waitUntil(const Queue& q, uint64_t ticket, uint32_t pe) {
    uint64_t told = device::atomicLoad<Scope::device, Order::acquire>(&q.state->ended);
    if (!reached(told, ticket) && !lookUntil(q, ticket, &told)) {
        return late(q, ticket, pe);
    }
    if (!reached(told, ticket)) {
        return kStopped;
    }
    if ((told & kTrouble) == 0) {
        return 0;
    }
    return pe < q.pes ? device::atomicLoad<Scope::system, Order::relaxed>(&q.status[pe]) : 0;
}

/// Takes the next slot, whose command of the lap before has ended. False if that does not come about: the slot stays empty
/// then, and the host never gets past it.
MORI_DEVICE_INLINE bool takeSlot(const Queue& q, uint32_t pe, uint64_t* position) {
    if (device::atomicLoad<Scope::device, Order::relaxed>(&q.state->broken) != 0) {
        return false;
    }
    *position = device::atomicAdd<Scope::device, Order::relaxed>(&q.state->head, uint64_t(1));
    const uint64_t slots = uint64_t(1) << q.log;
    if (*position < slots) {
        return true;
    }
    const uint32_t status = waitUntil(q, *position - slots + 1, pe);
    if (status == kTimeout || status == kStopped) {
        device::atomicStore<Scope::device, Order::relaxed>(&q.state->broken, 1u);
        return false;
    }
    return true;
}

/// Writes a command into the slot of a position and returns its ticket.
MORI_DEVICE_INLINE uint64_t publish(const Queue& q, uint64_t position, uint64_t first, uint64_t second) {
    const uint64_t slots = uint64_t(1) << q.log;
    const uint64_t lap = ((position >> q.log) & 1) ^ 1;
    device::fence<Scope::system>();  // payload and detail go before the command
    device::storePair(&q.ring[position & (slots - 1)].first, first | lap << kLapShift, second | lap << kLapShift);
    return position + 1;
}

MORI_DEVICE_INLINE uint64_t firstWord(Kind kind, uint32_t pe) {
    return uint64_t(kind) << kKindShift | uint64_t(pe) << kPlaceBits;
}

/// What the second word of a command with a detail says.
struct Terms {
    Atomic atomic = Atomic::set;
    uint32_t word = 8;  ///< bytes of what the atomic changes
    uint32_t region = 0;
    uint32_t signalRegion = 0;
};

MORI_DEVICE_INLINE uint64_t postDetailed(const Queue& q, uint64_t position, Kind kind, uint32_t pe, const Detail& detail,
                                         const Terms& terms) {
    q.details[position & ((uint64_t(1) << q.log) - 1)] = detail;
    return publish(q, position, firstWord(kind, pe) | kHasDetail,
                   uint64_t(terms.atomic) | uint64_t(terms.word) << kWordShift | uint64_t(terms.region & 0xffff) << kRegionShift |
                       uint64_t(terms.signalRegion & 0xffff) << kSignalRegionShift);
}

MORI_DEVICE_INLINE uint64_t post(const Queue& q, Kind kind, uint32_t pe, const Detail& detail, const Terms& terms) {
    uint64_t position = 0;
    if (pe >= q.pes || !takeSlot(q, pe, &position)) {
        return 0;
    }
    return postDetailed(q, position, kind, pe, detail, terms);
}

/// A put or get between the regions 0 of both sides fits the command itself.
MORI_DEVICE_INLINE uint64_t move(const Queue& q, Kind kind, uint32_t pe, uint64_t remote, uint64_t local, uint64_t bytes,
                                 uint32_t region) {
    uint64_t position = 0;
    if (pe >= q.pes || !takeSlot(q, pe, &position)) {
        return 0;
    }
    const uint64_t offset = local - q.local;
    if (region != 0 || (remote | offset) >> kPlaceBits != 0 || bytes >> kBytesBits != 0) {
        Terms terms;
        terms.region = region;
        return postDetailed(q, position, kind, pe, Detail{local, remote, bytes, 0, 0, 0}, terms);
    }
    return publish(q, position, firstWord(kind, pe) | remote, offset | bytes << kPlaceBits);
}

}  // namespace internal

/// Writes bytes at local to an offset of the PE's region. All of these return a ticket for wait, 0 if nothing was posted.
template <Group group>
MORI_DEVICE_INLINE uint64_t put(const Queue& q, uint32_t pe, uint64_t remote, uint64_t local, uint64_t bytes,
                                uint32_t region = 0) {
    return internal::lead<group>([&] { return internal::move(q, Kind::put, pe, remote, local, bytes, region); });
}

/// Reads bytes from an offset of the PE's region to local.
template <Group group>
MORI_DEVICE_INLINE uint64_t get(const Queue& q, uint32_t pe, uint64_t remote, uint64_t local, uint64_t bytes,
                                uint32_t region = 0) {
    return internal::lead<group>([&] { return internal::move(q, Kind::get, pe, remote, local, bytes, region); });
}

/// A place of 8 bytes at the PE that a put changes behind it.
struct Signal {
    uint32_t region;
    uint64_t offset;
    Atomic atomic;  ///< set or add
    uint64_t value;
};

/// put, and then the signal.
template <Group group>
MORI_DEVICE_INLINE uint64_t putSignal(const Queue& q, uint32_t pe, uint64_t remote, uint64_t local, uint64_t bytes,
                                      const Signal& signal, uint32_t region = 0) {
    return internal::lead<group>([&] {
        internal::Terms terms;
        terms.atomic = signal.atomic;
        terms.region = region;
        terms.signalRegion = signal.region;
        return internal::post(q, Kind::putSignal, pe, Detail{local, remote, bytes, signal.value, 0, signal.offset}, terms);
    });
}

/// Writes the low bytes of value, 1, 2, 4 or 8, to an offset of the PE's region.
template <Group group>
MORI_DEVICE_INLINE uint64_t putValue(const Queue& q, uint32_t pe, uint64_t remote, uint64_t value, uint32_t bytes,
                                     uint32_t region = 0) {
    return internal::lead<group>([&] {
        internal::Terms terms;
        terms.region = region;
        return internal::post(q, Kind::immediate, pe, Detail{0, remote, bytes, value, 0, 0}, terms);
    });
}

/// Changes a word of 4 or 8 bytes at an offset of the PE's region.
template <Group group>
MORI_DEVICE_INLINE uint64_t atomic(const Queue& q, uint32_t pe, uint64_t remote, Atomic change, uint64_t value,
                                   uint32_t word = 8, uint32_t region = 0) {
    return internal::lead<group>([&] {
        internal::Terms terms;
        terms.atomic = change;
        terms.word = word;
        terms.region = region;
        return internal::post(q, Kind::atomic, pe, Detail{0, remote, word, value, 0, 0}, terms);
    });
}

/// The same, and waits for the old value. compare is compareSwap's. Each thread for itself: it returns the status.
MORI_DEVICE_INLINE uint32_t fetch(const Queue& q, uint32_t pe, uint64_t remote, Atomic change, uint64_t value,
                                  uint64_t compare, uint64_t* old, uint32_t word = 8, uint32_t region = 0) {
    using device::Order;
    using device::Scope;
    uint64_t position = 0;
    if (pe >= q.pes) {
        return kRefused;
    }
    if (!internal::takeSlot(q, pe, &position)) {
        return kStopped;
    }
    const uint64_t slot = position & ((uint64_t(1) << q.log) - 1);
    // Who had the slot a lap before may not have read its result yet.
    const bool free = device::pollUntil(q.waitLimit, [&] {
        return device::atomicCompareSwap<Scope::device, Order::acqRel>(&q.busy[slot], 0u, 1u) == 0;
    });
    if (!free) {
        device::atomicStore<Scope::device, Order::relaxed>(&q.state->broken, 1u);
        return internal::late(q, position + 1, pe);
    }
    internal::Terms terms;
    terms.atomic = change;
    terms.word = word;
    terms.region = region;
    const Detail detail{0, remote, word, value, compare, 0};
    const uint64_t ticket = internal::postDetailed(q, position, Kind::fetch, pe, detail, terms);
    const uint32_t status = internal::waitUntil(q, ticket, pe);
    if (status == 0) {
        const Result* result = &q.results[slot];
        const bool mine = device::atomicLoad<Scope::system, Order::acquire>(&result->ticket) == ticket;
        *old = mine ? device::atomicLoad<Scope::system, Order::relaxed>(&result->value) : 0;
    }
    if (status != kTimeout) {  // else the host may still write it
        device::atomicStore<Scope::device, Order::release>(&q.busy[slot], 0u);
    }
    return status;
}

/// What follows to the PE takes effect after what came before.
template <Group group>
MORI_DEVICE_INLINE uint64_t fence(const Queue& q, uint32_t pe) {
    return internal::lead<group>(
        [&] { return internal::post(q, Kind::fence, pe, Detail{0, 0, 0, 0, 0, 0}, internal::Terms{}); });
}

/// Waits until what has the ticket, and all that was posted before it, has ended. Returns 0 or what is wrong with the PE.
template <Group group>
MORI_DEVICE_INLINE uint32_t wait(const Queue& q, uint64_t ticket, uint32_t pe) {
    return uint32_t(internal::lead<group>([&] {
        if (ticket == 0) {
            return uint64_t(pe < q.pes ? kStopped : kRefused);
        }
        return uint64_t(internal::waitUntil(q, ticket, pe));
    }));
}

/// Waits until all that was posted before, by anybody, has ended.
template <Group group>
MORI_DEVICE_INLINE uint32_t quiet(const Queue& q, uint32_t pe) {
    return uint32_t(internal::lead<group>([&] {
        const uint64_t head = device::atomicLoad<internal::Scope::device, internal::Order::acquire>(&q.state->head);
        return uint64_t(head == 0 ? 0 : internal::waitUntil(q, head, pe));
    }));
}

}  // namespace mori::proxy
