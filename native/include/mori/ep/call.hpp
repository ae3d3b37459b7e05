// SPDX-License-Identifier: MIT
/// What the kernels of one call have in common: flags between ranks, waits for them, and the blocks of a launch that come
/// to the end of a phase.
#pragma once

#include "mori/device/copy.hpp"
#include "mori/device/poll.hpp"
#include "mori/ep/op.hpp"

namespace mori::ep {

namespace internal {

using namespace mori::device;

MORI_DEVICE_INLINE char* memoryOf(const Op& op, uint32_t rank) { return reinterpret_cast<char*>(op.bases[rank]); }

/// The flag of a rank in the memory of another.
MORI_DEVICE_INLINE uint64_t* flagOf(const Op& op, uint64_t flags, uint32_t in, uint32_t rank) {
    return reinterpret_cast<uint64_t*>(memoryOf(op, in) + flags + uint64_t(rank) * kLineBytes);
}

MORI_DEVICE_INLINE bool isDead(const Op& op, uint32_t rank) { return op.dead >> rank & 1; }

MORI_DEVICE_INLINE uint64_t flagValue(uint64_t number, uint32_t signature) { return number << kSignatureBits | signature; }

/// One thread raises this rank's flag at every rank, behind its fence: what it did before that, and saw done, comes first.
MORI_DEVICE_INLINE void raise(const Op& op, uint64_t flags, uint64_t value) {
    MORI_DEVICE_ROLLED
    for (uint32_t rank = 0; rank < op.world; rank++) {
        if (!isDead(op, rank)) {
            atomicStore<Scope::system, kBehindFence>(flagOf(op, flags, rank, op.rank), value);
        }
    }
}

/// Notes why the op is of no more use, if nobody did before.
MORI_DEVICE_INLINE void breakOp(const Op& op, Fault fault) {
    auto* const word = reinterpret_cast<uint32_t*>(&op.progress->fault);
    if (atomicCompareSwap<Scope::device, Order::relaxed>(word, uint32_t(Fault::none), uint32_t(fault)) == uint32_t(Fault::none)) {
        atomicStore<Scope::system, Order::release>(reinterpret_cast<uint32_t*>(&op.notice->fault), uint32_t(fault));
    }
}

MORI_DEVICE_INLINE Fault faultOf(const Op& op) {
    return Fault(atomicLoad<Scope::device, Order::relaxed>(reinterpret_cast<const uint32_t*>(&op.progress->fault)));
}

MORI_DEVICE_INLINE bool isBroken(const Op& op) { return faultOf(op) != Fault::none; }

/// Whether the op is broken, by one look for all threads of the block. Kernels begin with it. If each thread looked for itself while another block breaks the
/// op, some threads would leave and the others would wait for them at the next blockSync.
MORI_DEVICE_INLINE bool blockIsBroken(const Op& op, uint32_t& shared) {
    if (threadInBlock() == 0) {
        shared = isBroken(op);
    }
    blockSync();
    return shared != 0;
}

/// All threads of the block bring the op to memory that they share: after each fence they would read it anew elsewhere, and they read it everywhere. False,
/// in all of them: the op is broken.
MORI_DEVICE_INLINE bool bring(const Op* from, Op& to, uint32_t& shared) {
    using Word __attribute__((may_alias)) = uint64_t;
    static_assert(sizeof(Op) % sizeof(Word) == 0);
    for (uint32_t i = threadInBlock(); i < sizeof(Op) / sizeof(Word); i += blockSize()) {
        reinterpret_cast<Word*>(&to)[i] = reinterpret_cast<const Word*>(from)[i];
    }
    return !blockIsBroken(*from, shared);
}

/// Whether the host wants waits to end. The op is broken then. The word is in host memory: waits ask for it once in a millisecond.
MORI_DEVICE_APART bool isAborted(const Op& op) {
    if (atomicLoad<Scope::system, Order::relaxed>(&op.notice->abort) == 0) {
        return false;
    }
    breakOp(op, Fault::aborted);
    return true;
}

/// Notes that a flag did not come, or came with another signature.
MORI_DEVICE_APART void breakBy(const Op& op, const uint64_t* flag, uint64_t value, uint64_t seen, uint32_t rank, bool came) {
    reportWait(&op.notice->wait, flag, value, seen, op.rank, rank);
    breakOp(op, came ? Fault::mismatch : Fault::timeout);
}

/// Notes that a rank was called otherwise, and raises this rank's flag. The block that raises it may find the op broken before, and the others would
/// wait for this rank instead of being told the same. Nobody goes on by that flag alone: each waits for the flag of the other rank, too.
MORI_DEVICE_APART void refuse(const Op& op, uint64_t flags, uint32_t rank, uint64_t value, uint64_t seen) {
    breakBy(op, flagOf(op, flags, op.rank, rank), value, seen, rank, true);
    fence<Scope::system>();
    raise(op, flags, value);
}

/// A lane waits until one rank's flag has come to the number, and compares signatures. False: the op is broken.
MORI_DEVICE_INLINE bool awaitFlag(const Op& op, uint64_t flags, uint32_t rank, uint64_t value, bool anySignature) {
    const uint64_t* const flag = flagOf(op, flags, op.rank, rank);
    uint64_t seen = 0;
    const bool came = pollUntil(
        op.waitLimit,
        [&] {
            seen = atomicLoad<Scope::system, Order::acquire>(flag);
            return seen >> kSignatureBits >= value >> kSignatureBits;
        },
        [&] { return isAborted(op); });
    const bool alike = anySignature || seen >> kSignatureBits != value >> kSignatureBits || seen == value;
    if (came && alike) {
        return true;
    }
    if (came) {
        refuse(op, flags, rank, value, seen);
    } else {
        breakBy(op, flag, value, seen, rank, false);
    }
    return false;
}

/// One warp waits for the flags of the ranks that ``whom`` has a bit for. False in all lanes: the op is broken.
MORI_DEVICE_INLINE bool awaitFlags(const Op& op, uint64_t flags, uint64_t value, uint64_t whom, bool anySignature) {
    bool came = true;
    for (uint32_t rank = laneInWarp(); rank < op.world; rank += kWarpSize) {
        if ((whom >> rank & 1) != 0 && !isDead(op, rank)) {
            came = awaitFlag(op, flags, rank, value, anySignature) && came;
        }
    }
    return warpBallot(!came) == 0;
}

/// All threads of all blocks come here once in a phase; true in the threads of the last block, which then sees what all
/// blocks did before, and whose first thread has a fence of the whole system behind that. scope is of those whose memory the blocks wrote.
template <Scope scope>
MORI_DEVICE_INLINE bool isLastBlock(const Op& op, uint32_t phase, uint32_t& shared) {
    blockSync();
    if (threadInBlock() == 0) {
        fence<scope>();  // this block's rows, before its arrival
        shared = 1;
        if (gridBlocks() > 1 || scope != Scope::system) {
            const uint32_t before = atomicAdd<Scope::device, Order::relaxed>(&op.progress->arrivals[phase], 1u);
            shared = before == gridBlocks() - 1;
            if (shared != 0) {
                atomicStore<Scope::device, Order::relaxed>(&op.progress->arrivals[phase], 0u);
                fence<Scope::system>();  // all arrivals, before what this block tells
            }
        }
    }
    blockSync();
    return shared != 0;
}

constexpr uint64_t kEveryone = ~uint64_t(0);

/// Warps that share work, and the calling one's place among them.
struct Team {
    uint32_t warp, warps;

    MORI_DEVICE_INLINE static Team all() { return {warpInGrid(), gridWarps()}; }

    /// The warps [first, end) of each block.
    MORI_DEVICE_INLINE static Team of(uint32_t first, uint32_t end) {
        return {blockInGrid() * (end - first) + warpInBlock() - first, gridBlocks() * (end - first)};
    }
};

/// How many of so many warps share the row of a token: where there are more warps than tokens, as many as have a line for each lane.
struct Parts {
    uint32_t each;

    MORI_DEVICE_INLINE Parts(uint32_t tokens, uint64_t rowBytes, uint32_t among) : each(1) {
        const uint32_t warps = tokens != 0 ? among / tokens : 0;
        const uint64_t most = rowBytes / (kWarpSize * sizeof(Chunk));
        if (warps > 1 && most > 1) {
            each = uint32_t(warps < most ? warps : most);
        }
    }
};

/// n * part / parts, where parts are fewer than 65536: GPUs divide 64 bits by dozens of instructions.
MORI_DEVICE_INLINE uint32_t beginOf(uint32_t n, uint32_t part, uint32_t parts) {
    const uint32_t each = n / parts;
    return each * part + (n - each * parts) * part / parts;
}

/// A warp's part of a row.
struct Part {
    uint32_t part, parts;

    /// Where the part of n things begins, and where it ends.
    MORI_DEVICE_INLINE uint32_t begin(uint32_t n) const { return beginOf(n, part, parts); }
    MORI_DEVICE_INLINE uint32_t end(uint32_t n) const { return beginOf(n, part + 1, parts); }

    struct Bytes {
        uint64_t from, count;
    };

    /// The part of a row of so many bytes: whole lines, but for its end.
    MORI_DEVICE_INLINE Bytes of(uint64_t rowBytes) const {
        constexpr uint32_t kLine = 128;
        const uint32_t lines = uint32_t((rowBytes + kLine - 1) / kLine);
        const uint64_t from = uint64_t(begin(lines)) * kLine;
        const uint64_t upTo = uint64_t(end(lines)) * kLine;
        return {from, (upTo < rowBytes ? upTo : rowBytes) - from};
    }
};

/// What a warp sends of tokens: a run of them, or, where there are more warps than tokens, a part of one.
struct Run {
    uint32_t first = 0, end = 0;  // tokens
    Part part{0, 1};
    uint64_t from = 0, bytes = 0;  // of each row

    MORI_DEVICE_INLINE Run(uint32_t tokens, uint64_t rowBytes) {
        const Parts parts(tokens, rowBytes, gridWarps());
        if (parts.each > 1) {
            first = warpInGrid() / parts.each;
            end = first < tokens ? first + 1 : first;
            part = {warpInGrid() % parts.each, parts.each};
        } else {
            first = beginOf(tokens, warpInGrid(), gridWarps());
            end = beginOf(tokens, warpInGrid() + 1, gridWarps());
        }
        const Part::Bytes mine = part.of(rowBytes);
        from = mine.from;
        bytes = mine.count;
    }
};

}  // namespace internal
}  // namespace mori::ep
