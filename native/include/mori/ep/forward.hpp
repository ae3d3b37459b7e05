// SPDX-License-Identifier: MIT
/// Sums that a host makes of the rows it has of another's tokens, so that one row of each token crosses the network.
///
/// The rank that forwarded a token in the dispatch still has its record, with the slots of its rows here: nobody sends records of the next dispatch before
/// all are in it. It reads those rows by loads, sums them in float32 in the order of ranks, rounds to the rows' own type, and sends the sums of a
/// chunk of records together, in their order, with the sums of the weights that travelled.
#pragma once

#include "mori/ep/between_sums.hpp"

namespace mori::ep {

namespace internal {

/// Where sums lie on their way: [peers, maxTokens] of a row and its weights. A chunk has those of a chunk of records.
struct HostSums {
    uint64_t weights;  // from the row on
    uint64_t bytes;    // of both
    uint32_t most;     // a peer's
    uint32_t chunk;    // a chunk's

    MORI_DEVICE_INLINE HostSums(const Op& op, const CombineArgs& args, const Records& records) : most(op.maxTokens), chunk(records.tokens) {
        weights = (uint64_t(args.hidden) * wayBytes(args) + 15) / 16 * 16;
        bytes = weights + (op.topk * sizeof(float) + 15) / 16 * 16;
    }

    /// Where one is in a region, as an offset.
    MORI_DEVICE_INLINE uint64_t at(uint64_t region, uint32_t number, uint32_t inChunk, uint32_t place) const {
        return region + (uint64_t(number) * most + uint64_t(inChunk) * chunk + place) * bytes;
    }
};

/// What a token gave the experts of a rank, by its record.
MORI_DEVICE_INLINE float factorAt(const Op& op, const char* words, uint32_t rank) {
    float factor = 0;
    for (uint32_t k = 0; k < op.topk; k++) {
        if (loadOnce<uint32_t>(words + k * 4) / op.expertsPerRank == rank) {
            factor = sum(factor, floatOf(loadOnce<uint32_t>(words + (op.topk + k) * 4)));
        }
    }
    return factor;
}

/// Where the rows of a record's token lie at the ranks of this host, in their order, and how many there are.
MORI_DEVICE_INLINE uint32_t findRowsHere(const Op& op, const CombineArgs& args, const Peers& peers, const char* tail, const AtRanks& where, Terms& terms) {
    const uint32_t served = peers.served();
    uint32_t count = 0;
    warpSync();  // the terms of the token before are done with
    for (uint32_t at = 0; at < served; at += kWarpSize) {
        const uint32_t mine = at + laneInWarp();
        const uint32_t slot = mine < served ? loadOnce<uint32_t>(tail + mine * 4) : ~0u;
        const bool has = slot < op.maxRecv;  // dispatch has refused other slots
        const uint64_t have = warpBallot(has);
        if (has) {
            const uint32_t rank = peers.firstServed(op.rank) + mine;
            const uint32_t place = count + bitCount(have & ((uint64_t(1) << laneInWarp()) - 1));
            const Row row = where.row(0, rank, slot);
            terms.rows[place] = row.elements;
            terms.weights[place] = row.weights;
            terms.factors[place] = args.weighted != 0 ? factorAt(op, tail + (served + 1) * 4, rank) : 1.0f;
        }
        count += bitCount(have);
    }
    warpSync();
    return count;
}

/// The tokens of other hosts whose records came here, a chunk of all peers at a time.
class Forwarded {
public:
    MORI_DEVICE_INLINE Forwarded(const Op& op, const Hosts& hosts, const CombineArgs& args)
        : op_(op), hosts_(hosts), args_(args), peers_(op, hosts, false), records_(op, hosts, peers_, hosts.progress->rowBytes), sums_(op, args, records_),
          open_((uint64_t(1) << peers_.count()) - 1) {}

    /// Whether a chunk is left.
    MORI_DEVICE_INLINE bool any() const { return open_ != 0; }
    MORI_DEVICE_INLINE uint32_t chunk() const { return chunk_; }

    /// Tokens of the chunk.
    MORI_DEVICE_INLINE uint32_t count() const {
        uint32_t count = 0;
        for (uint64_t left = open_; left != 0; left &= left - 1) {
            count += head(lowestBit(left)).records;
        }
        return count;
    }

    /// A warp finds the rows of one of them at the ranks of this host.
    MORI_DEVICE_INLINE Found find(uint32_t token, Terms& terms) const {
        uint64_t left = open_;
        for (; token >= head(lowestBit(left)).records; left &= left - 1) {
            token -= head(lowestBit(left)).records;
        }
        const uint32_t number = lowestBit(left);
        char* const base = memoryOf(op_, op_.rank);
        const char* const record = base + at(number) + kHeadBytes + token * records_.bytes;
        const AtRanks where(op_, args_, uint64_t(args_.hidden) * wayBytes(args_));
        char* const sum = base + sums_.at(hosts_.sums, number, chunk_, token);
        return {findRowsHere(op_, args_, peers_, record + records_.tail, where, terms), sum, reinterpret_cast<float*>(sum + sums_.weights)};
    }

    /// One warp sends the sums that all blocks have made. Nobody waits for none.
    MORI_DEVICE_INLINE void send(uint64_t value) const {
        for (uint32_t number = laneInWarp(); number < peers_.count(); number += kWarpSize) {
            const uint32_t count = (open_ >> number & 1) != 0 ? head(number).records : 0;
            if (count == 0 || isBroken(op_)) {
                continue;
            }
            const uint32_t rank = peers_.rank(number);
            const uint32_t mine = peers_.numberAt(rank, op_.rank);
            sendFar(op_, hosts_, rank, sums_.at(hosts_.rows, mine, chunk_, 0), sums_.at(hosts_.sums, number, chunk_, 0), count * sums_.bytes,
                    hosts_.rowFlags + (uint64_t(mine) * kMostChunks + chunk_) * 8, value);
        }
        warpSync();
    }

    MORI_DEVICE_INLINE void advance() {
        for (uint64_t left = open_; left != 0; left &= left - 1) {
            open_ &= ~(uint64_t(head(lowestBit(left)).last != 0) << lowestBit(left));
        }
        chunk_++;
    }

private:
    MORI_DEVICE_INLINE uint64_t at(uint32_t number) const { return records_.chunk(hosts_, hosts_.incoming, number, chunk_); }

    /// Dispatch has refused what cannot be.
    MORI_DEVICE_INLINE const ChunkHead& head(uint32_t number) const {
        return *reinterpret_cast<const ChunkHead*>(memoryOf(op_, op_.rank) + at(number));
    }

    const Op& op_;
    const Hosts& hosts_;
    const CombineArgs& args_;
    Peers peers_;
    Records records_;
    HostSums sums_;
    uint64_t open_;  // peers with a chunk left
    uint32_t chunk_ = 0;
};

/// Where rows are: with the ranks of this host, or where the sums of other hosts come to.
class AtRanksOrHosts {
public:
    MORI_DEVICE_INLINE AtRanksOrHosts(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t value)
        : op_(op), hosts_(hosts), peers_(op, hosts, false), sums_(op, args, Records(op, hosts, peers_, hosts.progress->rowBytes)),
          near_(op, args, uint64_t(args.hidden) * wayBytes(args)), value_(value) {}

    /// Choices of one host that is far have the same row, its forwarder's.
    MORI_DEVICE_INLINE uint32_t slot(uint32_t choice) const {
        const uint32_t rank = choice / op_.maxRecv;
        if (rank >= op_.world || isNear(hosts_, rank)) {
            return choice;
        }
        return (rank / hosts_.perHost * hosts_.perHost + op_.rank % hosts_.perHost) * op_.maxRecv;
    }

    /// The sum of a host that is far is waited for. If it does not come, the op is broken, and the row is any.
    MORI_DEVICE_INLINE Row row(uint32_t token, uint32_t rank, uint64_t row) const {
        if (isNear(hosts_, rank)) {
            return near_.row(token, rank, row);
        }
        const char* const base = memoryOf(op_, op_.rank);
        const uint32_t number = peers_.numberAt(op_.rank, rank);
        const uint32_t chunk = token / sums_.chunk;
        const auto* const flags = reinterpret_cast<const uint64_t*>(base + hosts_.rowFlags) + uint64_t(number) * kMostChunks;
        awaitWord(op_, hosts_, flags + chunk, rank, value_, false, hostMask(hosts_, peers_.firstServed(rank)));
        const char* const at = base + sums_.at(hosts_.rows, number, chunk, hosts_.places[uint64_t(number) * op_.maxTokens + token]);
        return {at, nullptr, reinterpret_cast<const float*>(at + sums_.weights), true};
    }

private:
    const Op& op_;
    const Hosts& hosts_;
    Peers peers_;
    HostSums sums_;
    AtRanks near_;
    uint64_t value_;
};

}  // namespace internal
}  // namespace mori::ep
