// SPDX-License-Identifier: MIT
/// The queues of ConnectX-4 and later NICs (mlx5).
///
/// An entry is a control segment and, by its opcode, others of 16 bytes each; it begins on a block of 64 bytes, and one of more than
/// four segments goes on in the next block, which is the ring's first after its last. Numbers are big-endian.
#pragma once

#include "mori/device/fence.hpp"
#include "mori/nic/nic.hpp"

namespace mori::nic {

namespace mlx5 {

constexpr uint32_t kNop = 0x00, kWrite = 0x08, kWriteImmediate = 0x09, kSend = 0x0a, kSendImmediate = 0x0b, kRead = 0x10,
                   kCompareSwap = 0x11, kFetchAdd = 0x12, kMaskedCompareSwap = 0x14, kMaskedFetchAdd = 0x15;
constexpr uint32_t kMasked4 = 8, kMasked8 = 9;  ///< opmods of masked operations, by width
constexpr uint32_t kSolicitedEvent = 0x02, kCompletion = 0x08, kInitiatorFence = 0x80;
constexpr uint32_t kInlineData = 0x80000000;
constexpr uint32_t kMostInline = 92;  ///< an entry of two blocks
constexpr uint32_t kRequester = 0, kRequesterError = 13, kResponderError = 14, kInvalid = 15;  ///< opcodes of completions

MORI_DEVICE_INLINE uint32_t big(uint32_t value) { return device::swapBytes(value); }

/// An entry's place in the ring.
struct Entry {
    uint64_t sq;
    uint64_t mask;
    uint64_t first;

    /// Writes the entry's segment of that number. The words are as memory has them.
    MORI_DEVICE_INLINE void put(uint32_t segment, uint32_t a, uint32_t b, uint32_t c, uint32_t d) const {
        const uint64_t block = (first + segment / 4) & mask;
        device::storeOnce(reinterpret_cast<void*>(sq + block * 64 + segment % 4 * 16), device::Chunk{{a, b, c, d}});
    }

    /// Two numbers of 8 bytes.
    MORI_DEVICE_INLINE void put(uint32_t segment, uint64_t a, uint64_t b) const {
        put(segment, big(uint32_t(a >> 32)), big(uint32_t(a)), big(uint32_t(b >> 32)), big(uint32_t(b)));
    }

    MORI_DEVICE_INLINE void remote(uint32_t segment, const Work& work) const {
        put(segment, big(uint32_t(work.remote >> 32)), big(uint32_t(work.remote)), big(work.rkey), 0);
    }

    MORI_DEVICE_INLINE void local(uint32_t segment, const Work& work) const {
        put(segment, big(uint32_t(work.bytes)), big(work.lkey), big(uint32_t(work.local >> 32)), big(uint32_t(work.local)));
    }

    /// Segments of what is in the entry itself: a word that tells how many bytes, and the bytes.
    template <class At>
    MORI_DEVICE_INLINE void inlined(uint32_t segment, uint32_t bytes, At at) const {
        using internal::wordOf;
        put(segment, big(kInlineData | bytes), wordOf(0, bytes, at), wordOf(4, bytes, at), wordOf(8, bytes, at));
        for (uint32_t done = 12; done < bytes; done += 16) {
            put(++segment, wordOf(done, bytes, at), wordOf(done + 4, bytes, at), wordOf(done + 8, bytes, at), wordOf(done + 12, bytes, at));
        }
    }
};

/// Which work is by which opcode, with the opmod above it.
MORI_DEVICE_INLINE uint32_t opcode(const Work& work) {
    const bool immediate = (work.flags & kImmediate) != 0;
    const uint32_t masked = (work.bytes == 4 ? kMasked4 : kMasked8) << 24;
    switch (work.kind) {
        case Kind::write:
        case Kind::writeInline:
        case Kind::writeValue:
            return immediate ? kWriteImmediate : kWrite;
        case Kind::read:
            return kRead;
        case Kind::send:
            return immediate ? kSendImmediate : kSend;
        case Kind::fetchAdd:
            return kFetchAdd;
        case Kind::compareSwap:
            return kCompareSwap;
        case Kind::maskedFetchAdd:
            return masked | kMaskedFetchAdd;
        case Kind::maskedCompareSwap:
            return masked | kMaskedCompareSwap;
        default:
            return kNop;
    }
}

/// How many segments the work's entry has; 0 if there can be none.
MORI_DEVICE_INLINE uint32_t segments(const Work& work) {
    // A data segment of 0 bytes would mean 2 GiB: it is left out.
    const uint32_t data = work.bytes > 0 ? 1 : 0;
    switch (work.kind) {
        case Kind::nop:
            return 1;
        case Kind::write:
        case Kind::read:
            return work.bytes <= kMostBytes ? 2 + data : 0;
        case Kind::send:
            return work.bytes <= kMostBytes ? 1 + data : 0;
        case Kind::writeInline:
            return work.bytes <= kMostInline ? 2 + (uint32_t(work.bytes) + 4 + 15) / 16 : 0;
        case Kind::writeValue:
            return work.bytes <= 8 ? 2 + (uint32_t(work.bytes) + 4 + 15) / 16 : 0;
        case Kind::fetchAdd:
        case Kind::compareSwap:
            return work.bytes == 8 ? 4 : 0;
        case Kind::maskedFetchAdd:
            return work.bytes == 8 || work.bytes == 4 ? 4 : 0;
        case Kind::maskedCompareSwap:
            return work.bytes == 8 ? 5 : work.bytes == 4 ? 4 : 0;
        default:
            return 0;
    }
}

MORI_DEVICE_INLINE void operands(const Entry& entry, const Work& work) {
    const uint32_t value = big(uint32_t(work.value)), mask = big(uint32_t(work.valueMask));
    if (work.kind == Kind::fetchAdd || work.kind == Kind::compareSwap) {
        entry.put(2, work.value, work.compare);
    } else if (work.kind == Kind::maskedFetchAdd) {
        if (work.bytes == 4) {
            entry.put(2, value, mask, 0, 0);
        } else {
            entry.put(2, work.value, work.valueMask);
        }
    } else if (work.bytes == 4) {
        entry.put(2, value, big(uint32_t(work.compare)), mask, big(uint32_t(work.compareMask)));
    } else {
        entry.put(2, work.value, work.compare);
        entry.put(3, work.valueMask, work.compareMask);
    }
}

MORI_DEVICE_INLINE void control(const Entry& entry, uint32_t qpn, const Work& work, uint32_t segments) {
    const uint32_t flags = ((work.flags & kSilent) != 0 ? 0 : kCompletion) |
                           ((work.flags & kFenced) != 0 ? kInitiatorFence : 0) |
                           ((work.flags & kSolicited) != 0 ? kSolicitedEvent : 0);
    entry.put(0, big(opcode(work) | uint32_t(entry.first & 0xffff) << 8), big(qpn << 8 | segments), big(flags),
              (work.flags & kImmediate) != 0 ? big(work.immediate) : 0);
}

/// How far the queue's work is done, by the completion of the entry whose first block has the low bits. The NIC takes at
/// most 1 << 15 blocks at once; what is further away is no news.
MORI_DEVICE_INLINE uint64_t completedBy(const Queue& queue, uint64_t completed, uint16_t low) {
    using namespace device;
    const uint64_t ahead = uint16_t(low - uint16_t(completed));
    if (ahead >= 1u << 15) {
        return completed;
    }
    const uint64_t first = completed + ahead;
    return first + atomicLoad<Scope::device, Order::relaxed>(internal::keptOf(queue, first));
}

}  // namespace mlx5

template <>
struct NIC<Provider::mlx5> {
    static constexpr uint32_t kMostInline = mlx5::kMostInline;

    static MORI_DEVICE_INLINE uint32_t blocks(const Work& work) { return (mlx5::segments(work) + 3) / 4; }
    static MORI_DEVICE_INLINE uint32_t kept(const Queue&, const Work& work) { return blocks(work); }
    static MORI_DEVICE_INLINE uint64_t room(const Queue& queue) { return uint64_t(1) << told(queue.sqLog); }
    static MORI_DEVICE_INLINE void admit(Queue&, uint64_t, uint32_t) {}

    static MORI_DEVICE_INLINE void encode(const Queue& queue, uint64_t first, const Work& work) {
        const mlx5::Entry entry{told(queue.sq), (uint64_t(1) << told(queue.sqLog)) - 1, first};
        const uint32_t segments = mlx5::segments(work);
        mlx5::control(entry, told(queue.qpn), work, segments);
        switch (work.kind) {
            case Kind::nop:
                break;
            case Kind::write:
            case Kind::read:
                entry.remote(1, work);
                if (work.bytes > 0) {
                    entry.local(2, work);
                }
                break;
            case Kind::send:
                if (work.bytes > 0) {
                    entry.local(1, work);
                }
                break;
            case Kind::writeInline:
                entry.remote(1, work);
                entry.inlined(2, uint32_t(work.bytes),
                              [&](uint32_t byte) { return reinterpret_cast<const uint8_t*>(work.local)[byte]; });
                break;
            case Kind::writeValue:
                entry.remote(1, work);
                entry.inlined(2, uint32_t(work.bytes), [&](uint32_t byte) { return uint8_t(work.value >> byte * 8); });
                break;
            default:
                entry.remote(1, work);
                mlx5::operands(entry, work);
                entry.local(segments - 1, work);
        }
    }

    /// The NIC may read entries as soon as the record has moved, and the record as soon as the doorbell has been rung; it may also
    /// read the record at any other time. So each of the three is seen by the whole system before the next.
    static MORI_DEVICE_INLINE void ring(const Queue& queue, uint64_t upto) {
        using namespace device;
        const uint32_t index = uint32_t(upto & 0xffff);
        fence<Scope::system>();
        MORI_NIC_STEP();
        atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint32_t*>(told(queue.dbr)) + 1, mlx5::big(index));
        MORI_NIC_STEP();
        fence<Scope::system>();
        MORI_NIC_STEP();
        atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint64_t*>(told(queue.uar)),
                                                   uint64_t(mlx5::big(told(queue.qpn) << 8)) << 32 | mlx5::big(index << 8));
        MORI_NIC_STEP();
    }

    /// The last four bytes of an entry are one load: counter, signature, opcode and owner. The NIC writes them last.
    static MORI_DEVICE_INLINE Completion completion(const Queue& queue, uint64_t polled, uint64_t completed) {
        using namespace device;
        const bool collapsed = (told(queue.flags) & kCollapsed) != 0;
        const uint64_t index = collapsed ? 0 : polled & ((uint64_t(1) << told(queue.cqLog)) - 1);
        const uint64_t entry = told(queue.cq) + index * 64;
        const uint32_t last = atomicLoad<Scope::system, Order::acquire>(reinterpret_cast<const uint32_t*>(entry + 60));
        const uint32_t opcode = last >> 28;
        const bool owned = collapsed || (last >> 24 & 1) == (polled >> told(queue.cqLog) & 1);
        if (opcode == mlx5::kInvalid || !owned) {
            return {};
        }
        Completion found{true, completed, kOk};
        if (opcode == mlx5::kRequester || opcode == mlx5::kRequesterError) {
            found.upto = mlx5::completedBy(queue, completed, uint16_t((last & 0xff) << 8 | (last >> 8 & 0xff)));
        }
        if (opcode == mlx5::kRequesterError || opcode == mlx5::kResponderError) {
            const uint32_t syndromes = atomicLoad<Scope::system, Order::relaxed>(reinterpret_cast<const uint32_t*>(entry + 52));
            found.status = (syndromes >> 16 & 0xff) << 8 | syndromes >> 24;
        }
        return found;
    }

    static MORI_DEVICE_INLINE void consume(const Queue& queue, uint64_t polled) {
        using namespace device;
        atomicStore<Scope::system, Order::release>(reinterpret_cast<uint32_t*>(told(queue.cqDbr)), mlx5::big(uint32_t(polled & 0xffffff)));
    }
};

}  // namespace mori::nic
