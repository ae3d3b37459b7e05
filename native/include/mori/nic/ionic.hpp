// SPDX-License-Identifier: MIT
/// The queues of AMD's Pensando NICs (ionic). Never run on one: only on CPUs and GPUs against NICs in software.
///
/// An entry is a block of 64 bytes: a header of 16, the peer's memory and the length in 16 more, and two descriptions of memory, or 32
/// bytes of data. Numbers are big-endian but for the index. A bit of the entry, its colour, is 1 in the first lap and changes
/// with each, as in completions. There are no records in memory: registers take indices of the ring.
///
/// Names and places are those of rdma-core, providers/ionic/ionic_fw_types.h; how they are used, of ionic_verbs.c and ionic_queue.h
/// beside it.
#pragma once

#include "mori/device/fence.hpp"
#include "mori/nic/nic.hpp"

namespace mori::nic {

namespace ionic {

constexpr uint32_t kFence = 1, kSolicitedEvent = 2, kInline = 4, kSignaled = 8, kColor = 16;  ///< IONIC_V1_FLAG_*
constexpr uint32_t kError = 2, kTypeShift = 5, kTypeMask = 7, kReceive = 1, kSendMsn = 2;     ///< ionic_v1_cqe_qtf_bits
constexpr uint32_t kQueueMask = 0xffffff, kQueueShift = 24;                                   ///< IONIC_QID_MASK, IONIC_DBELL_QID_SHIFT
constexpr uint32_t kEntryBytes = 64, kCqeBytes = 32;
constexpr uint32_t kMostInline = 32;  ///< union ionic_v1_pld

MORI_DEVICE_INLINE uint32_t big(uint32_t value) { return device::swapBytes(value); }
MORI_DEVICE_INLINE uint32_t bigHigh(uint64_t value) { return big(uint32_t(value >> 32)); }
MORI_DEVICE_INLINE uint32_t bigLow(uint64_t value) { return big(uint32_t(value)); }

/// Which work is by which opcode: ionic_v1_op and ionic_v2_op.
MORI_DEVICE_INLINE uint32_t opcode(const Work& work, uint32_t version) {
    const bool immediate = (work.flags & kImmediate) != 0, second = version >= 2;
    switch (work.kind) {
        case Kind::read:
            return second ? 0x02 : 0x03;
        case Kind::send:
            return second ? (immediate ? 0x60 : 0x20) : (immediate ? 0x02 : 0x00);
        case Kind::fetchAdd:
            return second ? 0x05 : 0x07;
        case Kind::compareSwap:
            return second ? 0x04 : 0x06;
        default:
            return second ? (immediate ? 0x61 : 0x21) : (immediate ? 0x05 : 0x04);
    }
}

MORI_DEVICE_INLINE bool isInline(const Work& work) { return work.kind == Kind::writeInline || work.kind == Kind::writeValue; }
MORI_DEVICE_INLINE bool isAtomic(const Work& work) { return work.kind == Kind::fetchAdd || work.kind == Kind::compareSwap; }

/// Whether there is an entry of the work. Only what ends at a receive of the peer's may raise an event.
MORI_DEVICE_INLINE bool possible(const Work& work) {
    const bool received = work.kind == Kind::send ||
                          ((work.flags & kImmediate) != 0 && (work.kind == Kind::write || isInline(work)));
    if ((work.flags & kSolicited) != 0 && !received) {
        return false;
    }
    switch (work.kind) {
        case Kind::write:
        case Kind::read:
        case Kind::send:
            return work.bytes <= kMostBytes;
        case Kind::writeInline:
            return work.bytes <= kMostInline;
        case Kind::writeValue:
            return work.bytes <= 8;
        case Kind::fetchAdd:
        case Kind::compareSwap:
            return work.bytes == 8;
        default:
            return false;
    }
}

MORI_DEVICE_INLINE uint64_t doorbell(uint64_t count, uint32_t log, uint32_t number) {
    return uint64_t(number & kQueueMask) << kQueueShift | (count & ((uint64_t(1) << log) - 1));
}

/// An entry's place.
struct Entry {
    uint64_t address;

    /// Writes 16 bytes; the words are as memory has them.
    MORI_DEVICE_INLINE void put(uint32_t chunk, uint32_t a, uint32_t b, uint32_t c, uint32_t d) const {
        device::storeOnce(reinterpret_cast<void*>(address + chunk * 16), device::Chunk{{a, b, c, d}});
    }

    MORI_DEVICE_INLINE void header(const Work& work, uint32_t index, uint32_t color, uint32_t version) const {
        const uint32_t flags = ((work.flags & kSilent) != 0 ? 0 : kSignaled) | ((work.flags & kFenced) != 0 ? kFence : 0) |
                               ((work.flags & kSolicited) != 0 ? kSolicitedEvent : 0) | (isInline(work) ? kInline : 0) |
                               (color != 0 ? kColor : 0);
        const uint32_t lists = !isInline(work) && work.bytes > 0 ? 1 : 0;
        put(0, index, 0, opcode(work, version) | lists << 8 | flags << 24,  // flags are the lower of two bytes, big-endian
            (work.flags & kImmediate) != 0 ? big(work.immediate) : 0);
    }

    MORI_DEVICE_INLINE void atomic(const Work& work, uint32_t version) const {
        const uint64_t compare = work.kind == Kind::compareSwap ? work.compare : 0;
        put(1, bigHigh(work.remote), bigLow(work.remote), big(work.rkey), bigHigh(work.value));
        put(2, bigLow(work.value), bigHigh(compare), bigLow(compare), version >= 2 ? big(work.lkey) : 0);
        put(3, bigHigh(work.local), bigLow(work.local), version >= 2 ? 0 : big(8), version >= 2 ? 0 : big(work.lkey));
    }

    MORI_DEVICE_INLINE void common(const Work& work) const {
        const bool remote = work.kind != Kind::send;
        put(1, remote ? bigHigh(work.remote) : 0, remote ? bigLow(work.remote) : 0, remote ? big(work.rkey) : 0, big(uint32_t(work.bytes)));
    }

    template <class At>
    MORI_DEVICE_INLINE void inlined(uint32_t bytes, At at) const {
        using internal::wordOf;
        put(2, wordOf(0, bytes, at), wordOf(4, bytes, at), wordOf(8, bytes, at), wordOf(12, bytes, at));
        put(3, wordOf(16, bytes, at), wordOf(20, bytes, at), wordOf(24, bytes, at), wordOf(28, bytes, at));
    }
};

}  // namespace ionic

template <>
struct NIC<Provider::ionic> {
    static constexpr uint32_t kMostInline = ionic::kMostInline;

    static MORI_DEVICE_INLINE uint32_t blocks(const Work& work) { return ionic::possible(work) ? 1 : 0; }
    static MORI_DEVICE_INLINE uint32_t kept(const Queue&, const Work&) { return 1; }
    static MORI_DEVICE_INLINE uint64_t room(const Queue& queue) {
        return (uint64_t(1) << told(queue.sqLog)) - told(annexOf(queue).spare);
    }
    static MORI_DEVICE_INLINE void admit(Queue&, uint64_t, uint32_t) {}

    static MORI_DEVICE_INLINE void encode(const Queue& queue, uint64_t first, const Work& work) {
        const uint32_t log = told(queue.sqLog), version = told(annexOf(queue).version);
        const uint64_t index = first & ((uint64_t(1) << log) - 1);
        const ionic::Entry entry{told(queue.sq) + index * ionic::kEntryBytes};
        entry.header(work, uint32_t(index), uint32_t(~first >> log & 1), version);
        if (ionic::isAtomic(work)) {
            entry.atomic(work, version);
            return;
        }
        entry.common(work);
        if (work.kind == Kind::writeInline) {
            entry.inlined(uint32_t(work.bytes), [&](uint32_t byte) { return reinterpret_cast<const uint8_t*>(work.local)[byte]; });
        } else if (work.kind == Kind::writeValue) {
            entry.inlined(uint32_t(work.bytes), [&](uint32_t byte) { return uint8_t(work.value >> byte * 8); });
        } else if (work.bytes > 0) {
            entry.put(2, ionic::bigHigh(work.local), ionic::bigLow(work.local), ionic::big(uint32_t(work.bytes)), ionic::big(work.lkey));
            entry.put(3, 0, 0, 0, 0);
        }
    }

    /// The NIC may read entries as soon as the doorbell has been rung.
    static MORI_DEVICE_INLINE void ring(const Queue& queue, uint64_t upto) {
        using namespace device;
        fence<Scope::system>();
        MORI_NIC_STEP();
        atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint64_t*>(told(queue.uar)),
                                                   ionic::doorbell(upto, told(queue.sqLog), told(queue.qpn)));
        MORI_NIC_STEP();
    }

    /// The last word of an entry has its colour, whether it tells of an error, and its type. One of the send queue has the number of
    /// messages that the peer has answered for; all our entries are messages.
    static MORI_DEVICE_INLINE Completion completion(const Queue& queue, uint64_t polled, uint64_t completed) {
        using namespace device;
        const uint64_t entry = told(queue.cq) + (polled & ((uint64_t(1) << told(queue.cqLog)) - 1)) * ionic::kCqeBytes;
        const uint32_t word = ionic::big(atomicLoad<Scope::system, Order::acquire>(reinterpret_cast<const uint32_t*>(entry + 28)));
        if ((word & 1) == (polled >> told(queue.cqLog) & 1)) {
            return {};
        }
        const uint32_t type = word >> ionic::kTypeShift & ionic::kTypeMask;
        Completion found{true, completed, kOk};
        if ((word & ionic::kError) != 0 || (type != ionic::kSendMsn && type != ionic::kReceive)) {
            const uint32_t status = atomicLoad<Scope::system, Order::relaxed>(reinterpret_cast<const uint32_t*>(entry + 24));
            found.status = type << 8 | (ionic::big(status) & 0xff);
        } else if (type == ionic::kSendMsn) {
            const uint32_t msn = ionic::big(atomicLoad<Scope::system, Order::relaxed>(reinterpret_cast<const uint32_t*>(entry + 4)));
            found.upto = completed + ((msn - completed) & ((uint64_t(1) << told(queue.sqLog)) - 1));
        }
        return found;
    }

    static MORI_DEVICE_INLINE void consume(const Queue& queue, uint64_t polled) {
        using namespace device;
        atomicStore<Scope::system, Order::release>(reinterpret_cast<uint64_t*>(told(queue.cqDbr)),
                                                   ionic::doorbell(polled, told(queue.cqLog), told(annexOf(queue).cqn)));
    }
};

}  // namespace mori::nic
