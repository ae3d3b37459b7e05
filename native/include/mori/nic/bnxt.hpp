// SPDX-License-Identifier: MIT
/// The queues of Broadcom's NetXtreme-E NICs that keep a table of packet numbers in the host's memory (Thor 2 and later). Never run on
/// one: only on CPUs and GPUs against NICs in software.
///
/// An entry is of slots of 16 bytes: a header of two, and what describes the data, or is it. Here all entries have places of eight slots
/// ("static" mode), so a block is an entry; doorbells and completions count entries. Numbers are little-endian. For each entry a
/// table behind the ring tells the packet numbers that it takes, so these are given out in the ring's order.
///
/// Names and places are those of rdma-core, providers/bnxt_re/bnxt_re-hsi.h; how they are used, of db.c and verbs.c beside it.
#pragma once

#include "mori/device/fence.hpp"
#include "mori/nic/nic.hpp"

namespace mori::nic {

namespace bnxt {

constexpr uint32_t kSend = 0x00, kSendImmediate = 0x01, kWrite = 0x04, kWriteImmediate = 0x05, kRead = 0x06, kCompareSwap = 0x08,
                   kFetchAdd = 0x0b;  ///< bnxt_re_wr_opcode
constexpr uint32_t kSignaled = 0x01, kUcFence = 0x04, kSolicitedEvent = 0x08, kInline = 0x10;  ///< bnxt_re_wr_flags
constexpr uint32_t kFlagsShift = 8, kSlotsShift = 16;                                          ///< bnxt_re_hdr_offset
constexpr uint32_t kSendQueue = 0x00, kCompletionQueue = 0x04;                                 ///< bnxt_re_db_que_type
constexpr uint32_t kEpochShift = 24, kValidShift = 26, kTypeShift = 28, kQueueMask = 0xfffff;  ///< bnxt_re_db_mask
constexpr uint32_t kRequester = 0x00, kReceiver = 0x01;                                        ///< bnxt_re_wc_type
constexpr uint64_t kPsnMask = 0xffffff;
constexpr uint32_t kNextPsnShift = 24, kStartIndexShift = 48;  ///< bnxt_re_msns_mask
constexpr uint32_t kEntryBytes = 128, kCqeBytes = 32;
constexpr uint32_t kMostInline = 96;  ///< BNXT_RE_MAX_INLINE_SIZE

/// Which work is by which opcode.
MORI_DEVICE_INLINE uint32_t opcode(const Work& work) {
    const bool immediate = (work.flags & kImmediate) != 0;
    switch (work.kind) {
        case Kind::read:
            return kRead;
        case Kind::send:
            return immediate ? kSendImmediate : kSend;
        case Kind::fetchAdd:
            return kFetchAdd;
        case Kind::compareSwap:
            return kCompareSwap;
        default:
            return immediate ? kWriteImmediate : kWrite;
    }
}

MORI_DEVICE_INLINE bool isInline(const Work& work) {
    return (work.kind == Kind::writeInline || work.kind == Kind::writeValue) && work.bytes > 0;
}

/// How many slots are written of an entry; 0 if there can be none.
MORI_DEVICE_INLINE uint32_t slots(const Work& work) {
    switch (work.kind) {
        case Kind::write:
        case Kind::read:
        case Kind::send:
            return work.bytes > kMostBytes ? 0 : work.bytes > 0 ? 3 : 2;
        case Kind::writeInline:
            return work.bytes <= kMostInline ? 2 + (uint32_t(work.bytes) + 15) / 16 : 0;
        case Kind::writeValue:
            return work.bytes <= 8 ? 2 + (uint32_t(work.bytes) + 15) / 16 : 0;
        case Kind::fetchAdd:
        case Kind::compareSwap:
            return work.bytes == 8 ? 3 : 0;
        default:
            return 0;
    }
}

/// What is stored to a register: an index with the lap's parity, and whose it is.
MORI_DEVICE_INLINE uint64_t doorbell(uint64_t count, uint32_t log, uint32_t number, uint32_t type) {
    const uint32_t low = uint32_t(count & ((uint64_t(1) << log) - 1)) | uint32_t(count >> log & 1) << kEpochShift;
    return uint64_t((number & kQueueMask) | 1u << kValidShift | type << kTypeShift) << 32 | low;
}

/// What the table of packets has of an entry.
MORI_DEVICE_INLINE uint64_t row(uint64_t index, uint64_t psn, uint64_t next) {
    return index << kStartIndexShift | (next & kPsnMask) << kNextPsnShift | (psn & kPsnMask);
}

MORI_DEVICE_INLINE void header(uint64_t entry, const Work& work) {
    using device::Chunk;
    const uint32_t flags = ((work.flags & kSilent) != 0 ? 0 : kSignaled) | ((work.flags & kFenced) != 0 ? kUcFence : 0) |
                           ((work.flags & kSolicited) != 0 ? kSolicitedEvent : 0) | (isInline(work) ? kInline : 0);
    const uint32_t first = opcode(work) | flags << kFlagsShift | slots(work) << kSlotsShift;
    const uint32_t remote[2] = {uint32_t(work.remote), uint32_t(work.remote >> 32)};
    Chunk head{{first, (work.flags & kImmediate) != 0 ? work.immediate : 0, uint32_t(work.bytes), 0}};
    Chunk body{{remote[0], remote[1], work.rkey, 0}};
    if (work.kind == Kind::send) {
        body = {};
    } else if (work.kind == Kind::fetchAdd || work.kind == Kind::compareSwap) {
        const uint64_t compare = work.kind == Kind::compareSwap ? work.compare : 0;
        head = {{first, work.rkey, remote[0], remote[1]}};
        body = {{uint32_t(work.value), uint32_t(work.value >> 32), uint32_t(compare), uint32_t(compare >> 32)}};
    }
    device::storeOnce(reinterpret_cast<void*>(entry), head);
    device::storeOnce(reinterpret_cast<void*>(entry + 16), body);
}

/// Bytes that go with the entry, from its third slot on.
template <class At>
MORI_DEVICE_INLINE void inlined(uint64_t entry, uint32_t bytes, At at) {
    using internal::wordOf;
    for (uint32_t done = 0; done < bytes; done += 16) {
        device::storeOnce(reinterpret_cast<void*>(entry + 32 + done),
                          device::Chunk{{wordOf(done, bytes, at), wordOf(done + 4, bytes, at), wordOf(done + 8, bytes, at),
                                         wordOf(done + 12, bytes, at)}});
    }
}

}  // namespace bnxt

template <>
struct NIC<Provider::bnxt> {
    static constexpr uint32_t kMostInline = bnxt::kMostInline;

    static MORI_DEVICE_INLINE uint32_t blocks(const Work& work) { return bnxt::slots(work) != 0 ? 1 : 0; }

    /// How many packets the work takes, there or back.
    static MORI_DEVICE_INLINE uint32_t kept(const Queue& queue, const Work& work) {
        const uint32_t mtu = told(queue.mtu), bytes = uint32_t(work.bytes);
        return bytes > mtu ? (bytes + mtu - 1) / mtu : 1;
    }

    static MORI_DEVICE_INLINE uint64_t room(const Queue& queue) {
        return (uint64_t(1) << told(queue.sqLog)) - told(annexOf(queue).spare);
    }

    static MORI_DEVICE_INLINE void encode(const Queue& queue, uint64_t first, const Work& work) {
        const uint64_t mask = (uint64_t(1) << told(queue.sqLog)) - 1;
        const uint64_t entry = told(queue.sq) + (first & mask) * bnxt::kEntryBytes;
        bnxt::header(entry, work);
        if (work.kind == Kind::writeInline) {
            bnxt::inlined(entry, uint32_t(work.bytes), [&](uint32_t byte) { return reinterpret_cast<const uint8_t*>(work.local)[byte]; });
        } else if (work.kind == Kind::writeValue) {
            bnxt::inlined(entry, uint32_t(work.bytes), [&](uint32_t byte) { return uint8_t(work.value >> byte * 8); });
        } else if (work.bytes > 0) {
            device::storeOnce(reinterpret_cast<void*>(entry + 32), device::Chunk{{uint32_t(work.local), uint32_t(work.local >> 32),
                                                                                  work.lkey, uint32_t(work.bytes)}});
        }
    }

    /// A row of the table for each entry: where it begins, its first packet's number and the number after its last.
    static MORI_DEVICE_INLINE void admit(Queue& queue, uint64_t first, uint32_t blocks) {
        using namespace device;
        Annex& annex = annexOf(queue);
        const uint64_t mask = (uint64_t(1) << told(queue.sqLog)) - 1;
        uint64_t* const rows = reinterpret_cast<uint64_t*>(told(annex.msn));
        uint64_t psn = atomicLoad<Scope::device, Order::relaxed>(&annex.psn);
        for (uint64_t index = first; index < first + blocks; index++) {
            const uint64_t next = psn + atomicLoad<Scope::device, Order::relaxed>(internal::keptOf(queue, index));
            atomicStore<Scope::device, Order::relaxed>(rows + (index & mask), bnxt::row(index & mask, psn, next));
            psn = next;
        }
        atomicStore<Scope::device, Order::relaxed>(&annex.psn, psn);
    }

    /// The NIC may read entries and rows as soon as the doorbell has been rung.
    static MORI_DEVICE_INLINE void ring(const Queue& queue, uint64_t upto) {
        using namespace device;
        fence<Scope::system>();
        MORI_NIC_STEP();
        atomicStore<Scope::system, Order::relaxed>(reinterpret_cast<uint64_t*>(told(queue.uar)),
                                                   bnxt::doorbell(upto, told(queue.sqLog), told(queue.qpn), bnxt::kSendQueue));
        MORI_NIC_STEP();
    }

    /// The seventh word of an entry has its phase, which is 1 in the first lap and changes with each, its type and its status. One that
    /// is of the send queue has the index behind the last entry that is done.
    static MORI_DEVICE_INLINE Completion completion(const Queue& queue, uint64_t polled, uint64_t completed) {
        using namespace device;
        const uint64_t entry = told(queue.cq) + (polled & ((uint64_t(1) << told(queue.cqLog)) - 1)) * bnxt::kCqeBytes;
        const uint32_t word = atomicLoad<Scope::system, Order::acquire>(reinterpret_cast<const uint32_t*>(entry + 24));
        if ((word & 1) == (polled >> told(queue.cqLog) & 1)) {
            return {};
        }
        const uint32_t type = word >> 1 & 0xf, status = word >> 8 & 0xff;
        Completion found{true, completed, kOk};
        if (status != 0 || (type != bnxt::kRequester && type != bnxt::kReceiver)) {
            found.status = type << 8 | status;
        } else if (type == bnxt::kRequester) {
            const uint32_t index = atomicLoad<Scope::system, Order::relaxed>(reinterpret_cast<const uint32_t*>(entry + 8));
            found.upto = completed + ((uint16_t(index) - completed) & ((uint64_t(1) << told(queue.sqLog)) - 1));
        }
        return found;
    }

    static MORI_DEVICE_INLINE void consume(const Queue& queue, uint64_t polled) {
        using namespace device;
        atomicStore<Scope::system, Order::release>(
            reinterpret_cast<uint64_t*>(told(queue.cqDbr)),
            bnxt::doorbell(polled, told(queue.cqLog), told(annexOf(queue).cqn), bnxt::kCompletionQueue));
    }
};

}  // namespace mori::nic
