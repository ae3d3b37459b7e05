// SPDX-License-Identifier: MIT
/// Flags and waits between ranks of several hosts, and where things lie that go between them.
#pragma once

#include "mori/ep/call.hpp"
#include "mori/ep/hosts.hpp"
#include "mori/shmem/network.hpp"

namespace mori::ep {

namespace internal {

MORI_DEVICE_INLINE bool isNear(const Hosts& hosts, uint32_t rank) { return hosts.near >> rank & 1; }

/// Bits for the ranks of this rank's host, moved to those of the host that begins with a rank.
MORI_DEVICE_INLINE uint64_t hostMask(const Hosts& hosts, uint32_t first) {
    return (hosts.perHost < 64 ? (uint64_t(1) << hosts.perHost) - 1 : kEveryone) << first;
}

/// A rank is not reached any more.
MORI_DEVICE_INLINE void lose(const Op& op, const void* what, uint64_t expected, uint32_t rank, uint64_t status) {
    reportWait(&op.notice->wait, what, expected, status, op.rank, rank);
    breakOp(op, Fault::network);
}

/// A thread sends bytes to the same place at a rank that is far, or to another one there, and sets a word behind them. Places are offsets in the
/// op's memory.
MORI_DEVICE_INLINE void sendFar(const Op& op, const Hosts& hosts, uint32_t rank, uint64_t to, uint64_t from, uint64_t bytes,
                                uint64_t flag, uint64_t value) {
    const uint64_t base = op.bases[op.rank];
    const uint64_t status = shmem::putSignalTo(*hosts.network, int(rank), base + to, base + from, bytes, base + flag, value);
    if (status != 0) {
        lose(op, nullptr, value, rank, status);
    }
}

/// A thread raises this rank's flag at one rank.
MORI_DEVICE_INLINE void raiseTo(const Op& op, const Hosts& hosts, uint32_t rank, uint64_t flags, uint64_t value) {
    if (isNear(hosts, rank)) {
        atomicStore<Scope::system, Order::release>(flagOf(op, flags, rank, op.rank), value);
    } else {
        sendFar(op, hosts, rank, 0, 0, 0, flags + uint64_t(op.rank) * kLineBytes, value);
    }
}

/// One warp raises this rank's flag at the ranks that ``whom`` has a bit for. What the calling lanes did before, and saw done, comes first.
/// A flag that goes far comes after all that went there before, so that none is overtaken by an older one.
MORI_DEVICE_INLINE void raiseAt(const Op& op, const Hosts& hosts, uint64_t flags, uint64_t value, uint64_t whom) {
    for (uint32_t rank = laneInWarp(); rank < op.world; rank += kWarpSize) {
        if ((whom >> rank & 1) != 0) {
            raiseTo(op, hosts, rank, flags, value);
        }
    }
}

/// A lane waits until a word that a rank sets has come to the number, and compares signatures. False: the op is broken. ``whom`` has bits for other ranks
/// without which that one does not set it.
MORI_DEVICE_INLINE bool awaitWord(const Op& op, const Hosts& hosts, const uint64_t* word, uint32_t rank, uint64_t value, bool anySignature, uint64_t whom = 0) {
    constexpr uint64_t kSlice = 20'000'000;  // between looks at the network, whose words may be the host's
    uint64_t seen = 0;
    bool came = false;
    for (uint64_t waited = 0; !came && waited < op.waitLimit; waited += kSlice) {
        if (isBroken(op)) {
            return false;
        }
        const uint64_t left = op.waitLimit - waited;
        bool aborted = false;
        came = pollUntil(
            left < kSlice ? left : kSlice,
            [&] {
                seen = atomicLoad<Scope::system, Order::acquire>(word);
                return seen >> kSignatureBits >= value >> kSignatureBits;
            },
            [&] { return aborted = isAborted(op); });
        if (aborted && !came) {
            break;
        }
        if (came || isNear(hosts, rank)) {
            continue;
        }
        for (uint64_t asked = whom | uint64_t(1) << rank; asked != 0; asked &= asked - 1) {
            const uint32_t one = lowestBit(asked);
            const uint64_t status = shmem::troubleWith(*hosts.network, int(one));
            if (status != 0) {
                lose(op, word, value, one, status);
                return false;
            }
        }
    }
    const bool alike = anySignature || seen >> kSignatureBits != value >> kSignatureBits || seen == value;
    if (came && alike) {
        return true;
    }
    breakBy(op, word, value, seen, rank, came);
    return false;
}

/// Raises this rank's flag of a call at the ranks that ``whom`` has a bit for, as refuse() does, since ranks were called differently. One thread.
MORI_DEVICE_APART void refuseRanks(const Op& op, const Hosts& hosts, uint64_t flags, uint64_t value, uint64_t whom) {
    for (uint32_t rank = 0; rank < op.world; rank++) {
        if ((whom >> rank & 1) != 0) {
            raiseTo(op, hosts, rank, flags, value);
        }
    }
}

/// One warp waits for the flags of the ranks that ``whom`` has a bit for. False in all lanes: the op is broken.
MORI_DEVICE_INLINE bool awaitRanks(const Op& op, const Hosts& hosts, uint64_t flags, uint64_t value, uint64_t whom, bool anySignature) {
    bool came = true;
    for (uint32_t rank = laneInWarp(); rank < op.world; rank += kWarpSize) {
        if ((whom >> rank & 1) != 0) {
            came = awaitWord(op, hosts, flagOf(op, flags, op.rank, rank), rank, value, anySignature) && came;
        }
    }
    const bool all = warpBallot(!came) == 0;
    if (!all && !anySignature && laneInWarp() == 0 && faultOf(op) == Fault::mismatch) {
        refuseRanks(op, hosts, flags, value, whom);
    }
    return all;
}

/// All threads of the block wait; false in all of them if the op is broken.
MORI_DEVICE_INLINE bool blockAwaitsRanks(const Op& op, const Hosts& hosts, uint64_t flags, uint64_t value, uint64_t whom, bool anySignature,
                                         uint32_t& shared) {
    blockSync();
    if (warpInBlock() == 0) {
        const bool came = awaitRanks(op, hosts, flags, value, whom, anySignature);
        if (laneInWarp() == 0) {
            shared = came;
        }
    }
    blockSync();
    return shared != 0;
}

/// All threads of all blocks come here once in a chunk; true in the threads of the last block, which then sees what all blocks did before.
MORI_DEVICE_INLINE bool isLastOfChunk(const Hosts& hosts, uint32_t chunk, uint32_t& shared) {
    blockSync();
    if (threadInBlock() == 0) {
        fence<Scope::system>();
        const uint32_t before = atomicAdd<Scope::device, Order::relaxed>(&hosts.progress->arrivals[chunk], 1u);
        shared = before == gridBlocks() - 1;
        if (shared != 0) {
            atomicStore<Scope::device, Order::relaxed>(&hosts.progress->arrivals[chunk], 0u);
            fence<Scope::system>();
        }
    }
    blockSync();
    return shared != 0;
}

/// The ranks of other hosts that this one sends to, and gets from: forwarders, or all. Each has a number.
class Peers {
public:
    /// all: every rank of another host, whether tokens are forwarded or not.
    MORI_DEVICE_INLINE Peers(const Op& op, const Hosts& hosts, bool all)
        : op_(op), each_(hosts.perHost), forwards_(hosts.hierarchical != 0 && !all) {}

    MORI_DEVICE_INLINE uint32_t count() const { return forwards_ ? op_.world / each_ - 1 : op_.world - each_; }

    MORI_DEVICE_INLINE uint32_t rank(uint32_t number) const {
        const uint32_t host = op_.rank / each_;
        if (forwards_) {
            return (number < host ? number : number + 1) * each_ + op_.rank % each_;
        }
        return number < host * each_ ? number : number + each_;
    }

    /// The number that one of two ranks has at the other.
    MORI_DEVICE_INLINE uint32_t numberAt(uint32_t rank, uint32_t of) const {
        const uint32_t there = rank / each_;
        const uint32_t host = of / each_;
        if (forwards_) {
            return host < there ? host : host - 1;
        }
        return of < there * each_ ? of : of - each_;
    }

    /// The ranks that one of them takes records for: how many, and the first.
    MORI_DEVICE_INLINE uint32_t served() const { return forwards_ ? each_ : 1; }
    MORI_DEVICE_INLINE uint32_t firstServed(uint32_t rank) const { return forwards_ ? rank / each_ * each_ : rank; }

private:
    const Op& op_;
    uint32_t each_;
    bool forwards_;
};

/// How many rows of so many bytes a chunk has, the same at all ranks.
MORI_DEVICE_INLINE uint32_t chunkOf(const Op& op, const Hosts& hosts, uint64_t bytes) {
    const uint64_t fit = hosts.chunkBytes / bytes;
    const uint32_t least = (op.maxTokens + kMostChunks - 1) / kMostChunks;
    return fit <= least ? least : fit < op.maxTokens ? uint32_t(fit) : op.maxTokens;
}

/// A record: its row; then words: a slot at each rank that its peer serves, or -1; its position, indices and weights; and then its scales.
struct Records {
    uint64_t tail;   // where the words begin
    uint64_t bytes;  // of a record
    uint32_t words;
    uint32_t tokens;  // a chunk has the records of so many tokens

    MORI_DEVICE_INLINE Records(const Op& op, const Hosts& hosts, const Peers& peers, uint64_t rowBytes) {
        tail = (rowBytes + 15) / 16 * 16;
        words = peers.served() + 1 + 2 * op.topk;
        bytes = (tail + words * 4 + hosts.scaleBytes + 15) / 16 * 16;
        tokens = chunkOf(op, hosts, bytes);
    }

    /// Where a peer's chunk is in a region, as an offset.
    MORI_DEVICE_INLINE uint64_t chunk(const Hosts& hosts, uint64_t region, uint32_t number, uint32_t chunk) const {
        return region + number * hosts.peerBytes + chunk * (kHeadBytes + tokens * bytes);
    }
};

}  // namespace internal
}  // namespace mori::ep
