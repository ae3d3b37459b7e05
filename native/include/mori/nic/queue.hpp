// SPDX-License-Identifier: MIT
/// What the host tells the device about a queue of a NIC and about registered memory. Hosts read it without a compiler of GPU
/// code. tools/abigen writes the Go side.
#pragma once

#include <stdint.h>

namespace mori::nic {

/// Families of NICs, by how their queues are written.
enum class Provider : uint32_t { mlx5 = 1, bnxt = 2, ionic = 3 };

/// Bits of Queue::flags.
constexpr uint32_t kCollapsed = 1;  ///< each completion overwrites the one entry of the completion queue (cc=1, oi=1)
constexpr uint32_t kNoDbr = 2;      ///< the producer index is in the doorbell; the record is written still
constexpr uint32_t kEmulated = 4;   ///< the doorbell is a word of memory

/// Values of Queue::status, and of what a wait returns. Up to 0xffff it is a completion's vendor syndrome << 8 | syndrome.
constexpr uint64_t kOk = 0;
constexpr uint64_t kStalled = 0x10000;   ///< a poster waited longer than its limit for room or for its turn: the queue is dead
constexpr uint64_t kTimedOut = 0x20000;  ///< work was not done within the wait's limit; the queue goes on
constexpr uint64_t kRefused = 0x40000;   ///< work that no entry can tell of: too many bytes, or no such kind

/// A send queue with its completion queue. It belongs in the memory of the GPU that posts, whose atomic operations change
/// it; the rings and records may be there or in host memory that is mapped. The host writes it once. It sees to it that the
/// completion queue has as many entries as the ring has blocks (or is collapsed), that no entry of it looks as if a NIC had
/// written it in the first lap (mlx5: the opcode is 0xf; others: zeros), and that sqLog is at most 15, since entries and
/// doorbells tell the low 16 bits of an index.
struct alignas(64) Queue {
    // What every thread reads and keeps.
    uint64_t sq;        ///< ring of blocks, 1 << sqLog of them: of 64 bytes, bnxt 128
    uint64_t dbr;       ///< mlx5: doorbell record: two big-endian words of 4 bytes, [1] is the send counter
    uint64_t cq;        ///< ring of entries, 1 << cqLog of them: of 64 bytes, bnxt and ionic 32
    uint64_t cqDbr;     ///< mlx5: big-endian count of entries read, 24 bits; others: the register that is the completion queue's doorbell
    uint64_t uar;       ///< the 8-byte register that is the doorbell
    uint32_t sqLog;
    uint32_t cqLog;
    uint32_t qpn;
    uint32_t provider;  ///< a Provider
    uint32_t flags;
    uint32_t mtu;       ///< bytes of payload in a packet

    // What the device's threads change. Counts are of blocks, from 0, and never wrap.
    uint64_t reserved;   ///< taken by posters
    uint64_t published;  ///< whose entries are whole, and so are all before
    uint64_t completed;  ///< whose work is done
    uint64_t status;     ///< the first error; it stays
    uint64_t kept;       ///< address of uint32_t[1 << sqLog]: of the entry that begins there, how many blocks it has (bnxt: packets)
    uint64_t polled;     ///< completion entries read
    uint64_t pollLock;   ///< 1 while a thread reads completions
    uint64_t bells;      ///< posters since the one that rings the doorbell began to; 0 if none rings
};

/// What the queue of a bnxt or ionic NIC has beside: it lies right behind the Queue.
struct alignas(64) Annex {
    uint64_t msn;      ///< bnxt: table of 1 << sqLog words of 8 bytes, which the NIC finds behind the ring
    uint32_t cqn;      ///< number of the completion queue
    uint32_t spare;    ///< blocks of the ring that are never in use: 1 at least, or the NIC would take a full ring for an empty one
    uint32_t version;  ///< ionic: of its formats, 1 or 2

    // What the device's threads change.
    alignas(64) uint64_t psn;  ///< bnxt: number of the next entry's first packet, of which the NIC knows 24 bits
};

/// Registered memory: lkey is what this side names it by, rkey what its peers do.
struct Memory {
    uint64_t addr;
    uint64_t bytes;
    uint32_t lkey;
    uint32_t rkey;
};

}  // namespace mori::nic
