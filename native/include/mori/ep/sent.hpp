// SPDX-License-Identifier: MIT
/// Rows of a combine that each rank sends to the ranks of their tokens (Transport::push), which sum them where they came to.
///
/// The row that rank d has of token t of rank s goes into the CombineIn of s, at d * maxTokens + t; those of d's own tokens stay where they are, if one launch
/// does all of the combine. Everybody knows from the counts of the last dispatch how many rows d has for each rank, and so when a chunk of them is
/// whole: then d writes the chunk's word in its line of Ready there. Sums begin before the last rows have come.
#pragma once

#include "mori/ep/sums.hpp"
#include "mori/ep/words.hpp"

namespace mori::ep {

namespace internal {

/// Rows of a chunk for all ranks together, at least: a word costs a fence, and a wait for what was sent before it. On CPUs tests have few rows.
#if defined(MORI_DEVICE_CPU)
constexpr uint32_t kLeastChunk = 2;
#else
constexpr uint32_t kLeastChunk = 512;
#endif

/// Where rows of the last dispatch lie, in memory that a block shares.
struct SentBlocks {
    uint32_t first[kMostRanks];  // at each rank, the slot of the first row of this rank's tokens
    uint32_t chunk[kMostRanks];  // of what each rank sends: rows of a chunk
    uint32_t begin[kMostRanks];  // here, the slot of the first row of each rank's tokens
    uint32_t rows[kMostRanks];   // here, of each rank's tokens
    uint8_t known[kMostWarps * kMostRanks];  // by warp and rank: the last chunk whose word it has seen. Its tokens go upwards

    /// All threads of the block.
    MORI_DEVICE_INLINE void read(const Op& op) {
        const auto* const words = reinterpret_cast<const uint64_t*>(memoryOf(op, op.rank) + op.regions.counts) + op.progress->dispatches % 2 * op.world * op.world;
        for (uint32_t d = threadInBlock(); d < op.world; d += blockSize()) {
            uint32_t before = 0, sum = 0, most = 0;
            constexpr uint32_t kAtOnce = 8;
            MORI_DEVICE_ROLLED
            for (uint32_t at = 0; at < op.world; at += kAtOnce) {
                uint64_t word[kAtOnce];
                MORI_DEVICE_UNROLL
                for (uint32_t i = 0; i < kAtOnce; i++) {
                    word[i] = at + i < op.world ? loadOnce<uint64_t>(words + (at + i) * op.world + d) : 0;
                }
                MORI_DEVICE_UNROLL
                for (uint32_t i = 0; i < kAtOnce; i++) {
                    const uint32_t source = at + i;
                    if (source >= op.world) {
                        break;
                    }
                    const uint32_t n = isDead(op, source) || isDead(op, d) ? 0 : rowsOf(word[i]);
                    if (d == op.rank) {
                        begin[source] = sum;
                        rows[source] = n;
                    }
                    before += source < op.rank ? n : 0;
                    sum += n;
                    most = n > most ? n : most;
                }
            }
            first[d] = before;
            const uint32_t each = (most + kSentChunks - 1) / kSentChunks;
            const uint32_t least = op.world > 2 ? (kLeastChunk + op.world - 2) / (op.world - 1) : kLeastChunk;
            chunk[d] = each > least ? each : least;
        }
        for (uint32_t i = threadInBlock(); i < kMostWarps * kMostRanks; i += blockSize()) {
            known[i] = 0;
        }
        blockSync();
    }
};

/// A warp has not got all rows, and its block comes to the end all the same: no block is the last one there any more.
MORI_DEVICE_INLINE void giveUp(const Op& op) {
    constexpr uint32_t kMoreThanBlocks = 1 << 16;
    atomicAdd<Scope::device, Order::relaxed>(&op.progress->arrivals[1], kMoreThanBlocks);
}

/// Bytes of the rows of the rank that received most, from which on they are sent. Fewer are faster when they are copied to where the others pull them: there
/// is one wait less for what was written to come to its place. On CPUs tests have few rows.
#if defined(MORI_DEVICE_CPU)
constexpr uint64_t kSentLeast = 200;
#else
constexpr uint64_t kSentLeast = 24 << 20;
#endif

/// Whether rows are sent. All ranks know the same counts.
MORI_DEVICE_INLINE bool isSent(const Op& op, const CombineArgs& args) {
    return args.transport == uint32_t(Transport::push) && uint64_t(op.progress->most) * args.hidden * wayBytes(args) >= kSentLeast;
}

/// Whether rows of this rank's own tokens stay where they are.
MORI_DEVICE_INLINE bool ownStay(const CombineArgs& args) { return args.phases == (kSend | kRecv); }

/// Copies of a warp under way: what a warp does for each takes as long as 8 KiB and more on their way, so that they are few and large.
constexpr uint32_t kSendStages = 4;
constexpr uint32_t kSendStage = 14336;
using SendStream = CopyStreamOf<kSendStages>;

/// A warp's share of the rows that this rank sends: every so many-th, first those that are first in their blocks.
class SentRows {
public:
    /// shared: for the warp's copies.
    MORI_DEVICE_INLINE SentRows(const Op& op, const CombineArgs& args, uint64_t value, const SentBlocks& blocks, Team team, SharedPart shared)
        : op_(op), args_(args), value_(value), blocks_(blocks), team_(team), shared_(shared), rowBytes_(uint64_t(args.hidden) * wayBytes(args)),
          peers_(op.world - (ownStay(args) ? 1 : 0)) {
        MORI_DEVICE_ROLLED
        for (uint32_t k = 0; k < peers_; k++) {
            const uint32_t rows = blocks.rows[rankOf(k)];
            most_ = rows > most_ ? rows : most_;
        }
        parts_ = most_ != 0 ? Parts(most_ * peers_, rowBytes_, team.warps).each : 1;
    }

    /// Sends it, and tells of each chunk that is whole.
    MORI_DEVICE_INLINE void send() {
        if (team_.warp == 0) {
            tellOfNone();
        }
        const uint32_t received = uint32_t(receivedOf(op_, args_));
        const uint32_t items = most_ * peers_ * parts_;
        SendStream stream(shared_);
        for (uint32_t at = team_.warp; at < items; at += team_.warps * kWarpSize) {
            const Item mine = item(at + laneInWarp() * team_.warps, items, received);
            for (uint32_t lane = 0; lane < kWarpSize && at + lane * team_.warps < items; lane++) {
                const uint32_t rank = uint32_t(warpBroadcast(uint64_t(mine.rank), lane));
                if (rank == kMostRanks) {
                    continue;
                }
                const uint64_t places = warpBroadcast(uint64_t(mine.index) << 32 | mine.token, lane);
                const uint32_t index = uint32_t(places >> 32), token = uint32_t(places);
                if (index / blocks_.chunk[op_.rank] != sent_.chunk) {
                    if (behind_ != 0) {
                        stream.finish();
                        tell(before_);
                    }
                    before_ = sent_;
                    sent_ = Sent{index / blocks_.chunk[op_.rank], {}};
                    behind_ = 1;
                }
                if (token != kNoToken) {
                    copy(stream, rank, blocks_.begin[rank] + index, token, {(at + lane * team_.warps) % parts_, parts_});
                    behind_ += behind_ != 0 ? 1 : 0;
                }
                MORI_DEVICE_UNROLL
                for (uint32_t i = 0; i < PerRank::kEach; i++) {
                    sent_.rows.of[i] += rank == i * kWarpSize + laneInWarp() ? 1 : 0;
                }
                if (behind_ > SendStream::kYoung) {
                    stream.finishOld();
                    tell(before_);
                    behind_ = 0;
                }
            }
        }
        stream.finish();
        if (behind_ != 0) {
            tell(before_);
        }
        tell(sent_);
    }

private:
    static constexpr uint32_t kNoToken = ~0u;

    /// A row, or a part of one.
    struct Item {
        uint32_t rank = kMostRanks;  // it goes to; kMostRanks: there is none
        uint32_t index = 0;          // among the rows for that rank
        uint32_t token = kNoToken;   // of that rank; kNoToken: there is nothing to be copied
    };

    MORI_DEVICE_INLINE Item item(uint32_t at, uint32_t items, uint32_t received) const {
        Item found;
        if (at >= items) {
            return found;
        }
        const uint32_t row = at / parts_;
        const uint32_t index = row / peers_, rank = rankOf(row % peers_);
        if (index < blocks_.rows[rank]) {
            found.rank = rank, found.index = index;
            const uint32_t slot = blocks_.begin[rank] + index;
            if (slot < received) {
                const auto* const positions = reinterpret_cast<const uint32_t*>(memoryOf(op_, op_.rank) + op_.regions.srcPositions);
                const uint32_t token = loadOnce<uint32_t>(positions + slot) - rank * op_.positionStride;
                found.token = token < op_.maxTokens ? token : kNoToken;
            }
        }
        return found;
    }

    /// The ranks that rows go to: each rank begins with its right neighbour, so that not all send to the same one.
    MORI_DEVICE_INLINE uint32_t rankOf(uint32_t number) const {
        const uint32_t rank = op_.rank + 1 + number;
        return rank < op_.world ? rank : rank - op_.world;
    }

    MORI_DEVICE_INLINE void copy(SendStream& stream, uint32_t rank, uint32_t slot, uint32_t token, Part part) {
        const Part::Bytes bytes = part.of(rowBytes_);
        const uint64_t place = uint64_t(op_.rank) * op_.maxTokens + token;
        char* const base = memoryOf(op_, rank);
        stream.copy(base + op_.regions.combineIn + place * rowBytes_ + bytes.from, static_cast<const char*>(args_.input) + slot * rowBytes_ + bytes.from, bytes.count);
        if (args_.weights != nullptr && part.part == 0) {
            const uint32_t each = op_.topk * sizeof(float);
            warpCopyApart(base + op_.regions.combineInWeights + place * each, reinterpret_cast<const char*>(args_.weights) + uint64_t(slot) * each, each);
        }
    }

    /// What was sent of a chunk.
    struct Sent {
        uint32_t chunk = 0;
        PerRank rows;  // or parts, for each rank
    };

    /// All lanes: what was sent has come to where it goes, and who brings the last rows of a chunk tells of it.
    MORI_DEVICE_INLINE void tell(const Sent& sent) const {
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < PerRank::kEach; i++) {
            const uint32_t rows = uint32_t(sent.rows.of[i]);
            if (rows == 0) {
                continue;
            }
            const uint32_t rank = i * kWarpSize + laneInWarp(), size = blocks_.chunk[op_.rank];
            const uint32_t left = blocks_.rows[rank] - sent.chunk * size;
            const uint32_t whole = (left < size ? left : size) * parts_;
            uint32_t* const count = &op_.progress->sent[rank][sent.chunk];
            fence<Scope::system>();  // these rows, before their arrival
            uint32_t before = 0;
            if (rows != whole) {
                before = atomicAdd<Scope::device, Order::relaxed>(count, rows);
            }
            if (before + rows == whole) {
                if (before != 0) {
                    atomicStore<Scope::device, Order::relaxed>(count, 0u);
                    fence<Scope::system>();  // all arrivals, before the word
                }
                atomicStore<Scope::system, kBehindFence>(flagOf(op_, op_.regions.ready, rank, op_.rank) + sent.chunk, value_);
            }
        }
        warpSync();
    }

    /// Who gets no rows is told so.
    MORI_DEVICE_INLINE void tellOfNone() const {
        for (uint32_t rank = laneInWarp(); rank < op_.world; rank += kWarpSize) {
            const bool none = blocks_.rows[rank] == 0 || (rank == op_.rank && ownStay(args_));
            if (none && !isDead(op_, rank)) {
                atomicStore<Scope::system, kBehindFence>(flagOf(op_, op_.regions.ready, rank, op_.rank), value_);
            }
        }
    }

    const Op& op_;
    const CombineArgs& args_;
    uint64_t value_;
    const SentBlocks& blocks_;
    Team team_;
    SharedPart shared_;
    uint64_t rowBytes_;
    uint32_t peers_;
    uint32_t most_ = 0;   // rows for one of them
    uint32_t parts_ = 1;  // of a row
    Sent sent_, before_;  // of the chunk that rows are sent of, and of the one before, if nobody was told of it
    uint32_t behind_ = 0;  // copies since then, and one; 0: everybody was
};

/// A lane waits for a chunk of the rows of a rank. If it does not come, the op is broken.
MORI_DEVICE_APART void awaitChunk(const Op& op, uint32_t rank, uint32_t chunk, uint64_t value) {
    if (!isBroken(op) && !awaitFlag(op, op.regions.ready + chunk * sizeof(uint64_t), rank, value, false)) {
        giveUp(op);
    }
}

/// Where rows are that were put where loads reach them, or sent here.
class AtRanksOrSent {
public:
    MORI_DEVICE_INLINE AtRanksOrSent(const Op& op, const CombineArgs& args, uint64_t value, SentBlocks& blocks, bool sent)
        : op_(op), args_(args), value_(value), blocks_(blocks), sent_(sent), rowBytes_(uint64_t(args.hidden) * wayBytes(args)), near_(op, args, rowBytes_) {}

    MORI_DEVICE_INLINE uint32_t slot(uint32_t choice) const { return choice; }

    /// A row that is sent is waited for. If it does not come, the op is broken, and the row is any.
    MORI_DEVICE_INLINE Row row(uint32_t token, uint32_t rank, uint64_t row) const {
        const bool own = rank == op_.rank && ownStay(args_);
        if (sent_ && !own) {
            await(rank, uint32_t(row));
            row = uint64_t(rank) * op_.maxTokens + token;
            rank = op_.rank;
        }
        Row found = near_.row(token, rank, row);
        if (sent_ && own) {
            found.elements = static_cast<const char*>(args_.input) + row * rowBytes_;
            found.weights = args_.weights != nullptr ? args_.weights + row * op_.topk : nullptr;
        }
        return found;
    }

    /// Whether a row was waited for since this was asked: copy engines are to see it, too.
    MORI_DEVICE_INLINE bool haveCome() const {
        const bool any = warpBallot(waited_) != 0;
        waited_ = false;
        return any;
    }

private:
    MORI_DEVICE_INLINE void await(uint32_t rank, uint32_t row) const {
        const uint32_t chunk = (row - blocks_.first[rank]) / blocks_.chunk[rank];
        uint8_t& known = blocks_.known[warpInBlock() * kMostRanks + rank];
        if (chunk > known && chunk < kSentChunks) {
            waited_ = true;
            awaitChunk(op_, rank, chunk, value_);
            known = uint8_t(chunk);
        }
    }

    const Op& op_;
    const CombineArgs& args_;
    uint64_t value_;
    SentBlocks& blocks_;
    bool sent_;
    uint64_t rowBytes_;
    AtRanks near_;
    mutable bool waited_ = false;
};

}  // namespace internal
}  // namespace mori::ep
