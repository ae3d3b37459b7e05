// SPDX-License-Identifier: MIT
/// The operations of symmetric memory, once for all groups and types; device.hpp has the names that programs call.
///
/// Over loads and stores a put is a copy: complete for this PE when it returns, visible to others in order after a fence
/// or quiet, and before a signal of the same call.
#pragma once

#include "mori/shmem/peer.hpp"

namespace mori::shmem {

namespace internal {

using device::Order;
using device::Scope;

/// One thread asks for what the group does. What all of them have stored before is what is sent.
template <Group group>
MORI_DEVICE_INLINE void groupRemote(const RemoteOp& op) {
    meet<group>();
    if (place<group>().rank == 0) {
        remote(op);
    }
}

template <Group group>
MORI_DEVICE_INLINE void put(void* symmetric, const void* local, uint64_t bytes, int pe, int qp) {
    if (char* const to = reach(pe).at(symmetric)) {
        device::groupCopy(to, local, bytes, place<group>());
    } else {
        groupRemote<group>({RemoteKind::put, pe, qp, 0, uint64_t(local), uint64_t(symmetric), bytes, 0, 0, 0});
    }
}

template <Group group>
MORI_DEVICE_INLINE void get(void* local, const void* symmetric, uint64_t bytes, int pe, int qp) {
    if (const char* const from = reach(pe).at(symmetric)) {
        device::groupCopy(local, from, bytes, place<group>());
    } else {
        groupRemote<group>({RemoteKind::get, pe, qp, 0, uint64_t(local), uint64_t(symmetric), bytes, 0, 0, 0});
    }
}

/// The transport has completed its operations. Loads and stores want a fence or a release besides.
MORI_DEVICE_INLINE void quietRemote(int pe, int qp) {
    const State own = state();
    if (own.far == 0) {
        return;  // to ask for each PE how it is reached would take a load from memory each
    }
    for (int other = pe < 0 ? 0 : pe; other < own.nPes && (pe < 0 || other == pe); other++) {
        if (byNetwork(transportTo(own, other))) {
            const RemoteOp op{RemoteKind::quiet, other, qp, 0, 0, own.heap, 0, 0, 0, 0};
            mori_shmem_remote(&op);
        }
    }
}

/// Operations of this PE are complete: over loads and stores a fence for the system does it.
MORI_DEVICE_INLINE void quiet(int pe, int qp) {
    device::fence<Scope::system>();
    quietRemote(pe, qp);
}

template <Group group>
MORI_DEVICE_INLINE void getAndWait(void* local, const void* symmetric, uint64_t bytes, int pe, int qp) {
    get<group>(local, symmetric, bytes, pe, qp);
    if (place<group>().rank == 0) {
        quiet(pe, qp);
    }
    meet<group>();
}

/// Replaces the word by change(word), and returns what was there before.
template <class Word, class Change>
MORI_DEVICE_INLINE Word update(Word* address, Change change) {
    Word seen = device::atomicLoad<Scope::system, Order::relaxed>(address);
    while (true) {
        const Word before = device::atomicCompareSwap<Scope::system, Order::acqRel>(address, seen, change(seen));
        if (before == seen) {
            return before;
        }
        seen = before;
    }
}

/// Word is uint32_t or uint64_t. An op that is none of AtomicType changes nothing.
template <class Word>
MORI_DEVICE_INLINE Word applyAtomic(Word* address, Word value, Word compare, uint32_t op) {
    switch (op) {
        case AMO_INC:
        case AMO_FETCH_INC:
            return device::atomicAdd<Scope::system, Order::acqRel>(address, Word(1));
        case AMO_ADD:
        case AMO_SIGNAL_ADD:
        case AMO_FETCH_ADD:
            return device::atomicAdd<Scope::system, Order::acqRel>(address, value);
        case AMO_AND:
        case AMO_FETCH_AND:
            return update(address, [=](Word seen) { return Word(seen & value); });
        case AMO_OR:
        case AMO_FETCH_OR:
            return update(address, [=](Word seen) { return Word(seen | value); });
        case AMO_XOR:
        case AMO_FETCH_XOR:
            return update(address, [=](Word seen) { return Word(seen ^ value); });
        case AMO_SET:
        case AMO_SIGNAL:
        case AMO_SIGNAL_SET:
            device::atomicStore<Scope::system, Order::release>(address, value);
            return 0;
        case AMO_SWAP:
            return update(address, [=](Word) { return value; });
        case AMO_COMPARE_SWAP:
            return device::atomicCompareSwap<Scope::system, Order::acqRel>(address, compare, value);
        default:
            return device::atomicLoad<Scope::system, Order::acquire>(address);
    }
}

/// What op makes of a part of a word.
template <class Part>
MORI_DEVICE_INLINE Part changed(Part seen, Part value, Part compare, uint32_t op) {
    switch (op) {
        case AMO_INC:
        case AMO_FETCH_INC:
            return Part(seen + 1);
        case AMO_ADD:
        case AMO_SIGNAL_ADD:
        case AMO_FETCH_ADD:
            return Part(seen + value);
        case AMO_AND:
        case AMO_FETCH_AND:
            return Part(seen & value);
        case AMO_OR:
        case AMO_FETCH_OR:
            return Part(seen | value);
        case AMO_XOR:
        case AMO_FETCH_XOR:
            return Part(seen ^ value);
        case AMO_SET:
        case AMO_SIGNAL:
        case AMO_SIGNAL_SET:
        case AMO_SWAP:
            return value;
        case AMO_COMPARE_SWAP:
            return seen == compare ? value : seen;
        default:
            return seen;
    }
}

/// Part is uint8_t or uint16_t. GPUs change words of 4 and 8 bytes, so the word around it is exchanged.
template <class Part>
MORI_DEVICE_INLINE Part applyAtomicPart(char* address, Part value, Part compare, uint32_t op) {
    uint32_t* const word = reinterpret_cast<uint32_t*>(uint64_t(address) / 4 * 4);
    const uint32_t shift = uint32_t(uint64_t(address) % 4) * 8;
    const uint32_t mask = uint32_t(Part(~Part(0))) << shift;
    const uint32_t before = update(word, [=](uint32_t seen) {
        return (seen & ~mask) | uint32_t(changed(Part(seen >> shift), value, compare, op)) << shift;
    });
    return Part(before >> shift);
}

/// ``at`` is where the PE's copy is, or null.
template <class T>
MORI_DEVICE_INLINE T atomicAt(char* at, T* symmetric, T value, T compare, uint32_t op, int pe, int qp) {
    static_assert(sizeof(T) <= 8);
    if (at != nullptr) {
        if constexpr (sizeof(T) == 1) {
            return T(applyAtomicPart(at, uint8_t(value), uint8_t(compare), op));
        } else if constexpr (sizeof(T) == 2) {
            return T(applyAtomicPart(at, uint16_t(value), uint16_t(compare), op));
        } else if constexpr (sizeof(T) == 4) {
            return T(applyAtomic(reinterpret_cast<uint32_t*>(at), uint32_t(value), uint32_t(compare), op));
        } else {
            return T(applyAtomic(reinterpret_cast<uint64_t*>(at), uint64_t(value), uint64_t(compare), op));
        }
    }
    return T(remote({RemoteKind::atomic, pe, qp, op, 0, uint64_t(symmetric), sizeof(T), uint64_t(value),
                     uint64_t(compare), 0}));
}

template <class T>
MORI_DEVICE_INLINE T atomic(T* symmetric, T value, T compare, uint32_t op, int pe, int qp) {
    return atomicAt(reach(pe).at(symmetric), symmetric, value, compare, op, pe, qp);
}

/// The operand is the bytes, 1, 2, 4 or 8, at value.
MORI_DEVICE_INLINE void atomicOfSize(void* symmetric, const void* value, uint64_t bytes, uint32_t op, int pe, int qp) {
    switch (bytes) {
        case 1:
            atomic(static_cast<uint8_t*>(symmetric), *static_cast<const uint8_t*>(value), uint8_t(0), op, pe, qp);
            break;
        case 2:
            atomic(static_cast<uint16_t*>(symmetric), *static_cast<const uint16_t*>(value), uint16_t(0), op, pe, qp);
            break;
        case 4:
            atomic(static_cast<uint32_t*>(symmetric), *static_cast<const uint32_t*>(value), uint32_t(0), op, pe, qp);
            break;
        case 8:
            atomic(static_cast<uint64_t*>(symmetric), *static_cast<const uint64_t*>(value), uint64_t(0), op, pe, qp);
            break;
        default:
            fail(symmetric, 8, bytes, pe);
    }
}

/// The lanes of a group ask for one atomic operation; who asked first does it, and all get its result.
template <Group group, class T>
MORI_DEVICE_INLINE T groupAtomic(T* symmetric, T value, T compare, uint32_t op, int pe, int qp) {
    T before{};
    if (place<group>().rank == 0) {
        before = atomic(symmetric, value, compare, op, pe, qp);
    }
    if constexpr (group == Group::warp) {
        before = T(device::warpBroadcast(uint64_t(before), 0));
    }
    return before;
}

/// The payload is at the peer before the signal is. With oneSignal the group gives one signal, else each of its threads.
template <Group group, bool oneSignal>
MORI_DEVICE_INLINE void putSignal(void* symmetric, const void* local, uint64_t bytes, uint64_t* signal, uint64_t value,
                                  uint32_t op, int pe, int qp) {
    const bool first = place<group>().rank == 0;
    const Reached peer = reach(pe);
    char* const to = peer.at(symmetric);
    if (to == nullptr) {
        const RemoteOp one{RemoteKind::putSignal, pe, qp, op, uint64_t(local), uint64_t(symmetric), bytes, value, 0,
                           uint64_t(signal)};
        groupRemote<group>(one);
        if (!oneSignal) {
            meet<group>();  // the others' signals go behind the payload
            if (!first) {
                RemoteOp more = one;
                more.bytes = 0;
                remote(more);
            }
        }
        return;
    }
    device::groupCopy(to, local, bytes, place<group>());
    meet<group>();
    if (first || !oneSignal) {
        // The signal's own release covers the group, which has met; one more fence would wait for the link once more.
        atomicAt(peer.at(signal), signal, value, uint64_t(0), op, pe, qp);
    }
}

/// A value of 1, 2, 4 or 8 bytes from a register.
MORI_DEVICE_INLINE void putImmediate(void* symmetric, uint64_t value, uint32_t bytes, int pe, int qp) {
    char* const to = reach(pe).at(symmetric);
    if (to == nullptr) {
        remote({RemoteKind::immediate, pe, qp, 0, 0, uint64_t(symmetric), bytes, value, 0, 0});
        return;
    }
    // Whole, since the peer may wait for it.
    if (bytes == 8 && uint64_t(to) % 8 == 0) {
        device::atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint64_t*>(to), value);
    } else if (bytes == 4 && uint64_t(to) % 4 == 0) {
        device::atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint32_t*>(to), uint32_t(value));
    } else if (bytes == 2 && uint64_t(to) % 2 == 0) {
        device::atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint16_t*>(to), uint16_t(value));
    } else if (bytes == 1) {
        device::atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint8_t*>(to), uint8_t(value));
    } else {
        for (uint32_t i = 0; i < bytes && i < 8; i++) {
            device::storeOnce(to + i, uint8_t(value >> 8 * i));
        }
    }
}

/// Tells PE pe by a word of its own that this one has come to a barrier. A fence precedes it.
MORI_DEVICE_INLINE void signalBarrier(const Reached& peer, uint64_t* word, uint64_t epoch, int pe) {
    if (char* const to = peer.at(word)) {
        device::atomicStore<Scope::system, device::kBehindFence>(reinterpret_cast<uint64_t*>(to), epoch);
    } else {
        remote({RemoteKind::atomic, pe, 0, AMO_SIGNAL_SET, 0, uint64_t(word), sizeof(epoch), epoch, 0, 0});
    }
}

/// Waits until PE pe has told so.
MORI_DEVICE_INLINE void awaitBarrier(const uint64_t* word, uint64_t epoch, int pe) {
    waitFor(word, epoch, pe, [&](uint64_t& seen) {
        seen = device::atomicLoad<Scope::system, Order::acquire>(word);
        return seen >= epoch;
    });
}

/// So many PEs signal each other all at once, which takes as long as one signal; more would be many signals from each.
constexpr int kBarrierAtOnce = 32;

/// In each round a PE signals the one so far ahead and waits for the one so far behind; distances double.
MORI_DEVICE_INLINE void meetInRounds(const State& own, uint64_t* words, uint64_t epoch) {
    uint32_t round = 1;
    for (int distance = 1; distance < own.nPes; distance *= 2, round++) {
        device::fence<Scope::system>();
        const int ahead = (own.myPe + distance) % own.nPes;
        signalBarrier(reach(own, ahead), &words[round], epoch, ahead);
        const int behind = (own.myPe - distance + own.nPes) % own.nPes;
        awaitBarrier(&words[round], epoch, behind);
    }
}

/// The group that calls it meets one of every PE, and what each did before by loads and stores is seen by all after. Groups may be of
/// different kinds.
template <Group group, int kAtOnce = kBarrierAtOnce>
MORI_DEVICE_INLINE void meetAllPes() {
    const State own = state();
    const device::Place here = place<group>();
    uint64_t* const words = reinterpret_cast<uint64_t*>(own.heap + own.sync);
    const Reached first = reach(own, int(here.rank));  // on its way while the epoch is
    const uint64_t epoch = device::atomicLoad<Scope::device, Order::relaxed>(words) + 1;
    meet<group>();  // all have read it
    if (here.rank == 0) {
        device::atomicStore<Scope::device, Order::relaxed>(words, epoch);
    }
    if (own.nPes > kAtOnce) {
        if (here.rank == 0) {
            meetInRounds(own, words, epoch);
        }
    } else {
        device::fence<Scope::system>();
        for (int pe = int(here.rank); pe < own.nPes; pe += int(here.size)) {
            if (pe != own.myPe) {
                signalBarrier(pe == int(here.rank) ? first : reach(own, pe), &words[1 + own.myPe], epoch, pe);
            }
        }
        for (int pe = int(here.rank); pe < own.nPes; pe += int(here.size)) {
            if (pe != own.myPe) {
                awaitBarrier(&words[1 + pe], epoch, pe);
            }
        }
    }
    meet<group>();
}

/// As meetAllPes, and what went through a transport is complete, too.
template <Group group>
MORI_DEVICE_INLINE void barrierAll() {
    meet<group>();
    if (place<group>().rank == 0) {
        quietRemote(-1, -1);
    }
    meetAllPes<group>();
}

template <class T, class Compare>
MORI_DEVICE_INLINE T waitUntil(T* address, T value, Compare compare) {
    T last{};
    waitFor(address, uint64_t(value), -1, [&](uint64_t& seen) {
        last = device::atomicLoad<Scope::system, Order::acquire>(address);
        seen = uint64_t(last);
        return compare(last, value);
    });
    return last;
}

}  // namespace internal
}  // namespace mori::shmem
