// SPDX-License-Identifier: MIT
// Dispatch where some ranks are on other hosts. What goes to ranks of this host is written where it belongs, as in dispatch.cpp; what goes
// to others is written as records, and sent a chunk of tokens at a time, while the next chunk is being written. Whoever gets records copies
// them to where they belong, at its own rank or, as a forwarder, at all ranks of its host.
#include "mori/ep/ahead.hpp"
#include "mori/ep/between.hpp"
#include "mori/ep/companions.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

struct Shared {
    Plan plan;
    int32_t slots[kMostWarps * kMostRanks];
    uint32_t places[kMostWarps * kMostRanks];
};

/// One warp puts this rank's counts on everybody's board, and tells them.
MORI_DEVICE_INLINE void publishAll(const Op& op, const Hosts& hosts, const Plan& plan, uint64_t number, uint32_t signature) {
    for (uint32_t rank = laneInWarp(); rank < op.world; rank += kWarpSize) {
        if (isNear(hosts, rank)) {
            int32_t* const row = countsOf(op, rank, number, op.rank);
            for (uint32_t d = 0; d < op.world; d++) {
                row[d] = plan.totals[d];
            }
        }
    }
    warpSync();
    const uint64_t value = flagValue(number, signature);
    raiseAt(op, hosts, op.regions.published, value, hosts.near);
    const uint64_t at = uint64_t(reinterpret_cast<char*>(countsOf(op, op.rank, number, op.rank)) - memoryOf(op, op.rank));
    for (uint32_t rank = laneInWarp(); rank < op.world; rank += kWarpSize) {
        if (!isNear(hosts, rank)) {
            sendFar(op, hosts, rank, at, at, op.world * sizeof(int32_t), op.regions.published + uint64_t(op.rank) * kLineBytes, value);
        }
    }
}

/// Rows of a source for the ranks ahead of one that are not of the source's host.
MORI_DEVICE_INLINE uint32_t rowsAhead(const Hosts& hosts, const int32_t* counts, uint32_t source, uint32_t rank) {
    uint32_t rows = 0;
    for (uint32_t d = 0; d < rank; d++) {
        rows += d / hosts.perHost != source / hosts.perHost ? uint32_t(counts[d]) : 0;
    }
    return rows;
}

/// The threads of one block keep for combine which blocks of rows there are.
MORI_DEVICE_INLINE void keepBlocks(const Op& op, const Hosts& hosts, uint64_t number, const Plan& plan) {
    const int32_t* const own = countsOf(op, op.rank, number, op.rank);
    for (uint32_t rank = threadInBlock(); rank < op.world; rank += blockSize()) {
        uint32_t first = 0;
        for (uint32_t source = 0; source < rank; source++) {
            first += plan.admitted >> source & 1 ? uint32_t(countsOf(op, op.rank, number, source)[op.rank]) : 0;
        }
        const int32_t* const theirs = countsOf(op, op.rank, number, rank);
        const uint32_t rows = plan.admitted >> rank & 1 ? uint32_t(theirs[op.rank]) : 0;
        hosts.progress->made[rank] = {first, rows, rowsAhead(hosts, theirs, rank, op.rank), 0};
        hosts.progress->sent[rank] = {uint32_t(plan.bases[rank]), plan.sends != 0 ? uint32_t(own[rank]) : 0,
                                      rowsAhead(hosts, own, op.rank, rank), 0};
    }
}

/// A bit for each peer that gets a record of a token, by its rank.
MORI_DEVICE_INLINE uint64_t takers(const Op& op, const Hosts& hosts, uint64_t ranks) {
    const uint64_t far = ranks & ~hosts.near;
    if (hosts.hierarchical == 0) {
        return far;
    }
    uint64_t found = 0;
    for (uint32_t first = 0; first < op.world; first += hosts.perHost) {
        found |= uint64_t((far & hostMask(hosts, first)) != 0) << (first + op.rank % hosts.perHost);
    }
    return found;
}

/// Where the records of a token go in a chunk.
struct Outgoing {
    uint32_t chunk;
    uint32_t begin, end;  // tokens of the chunk
};

/// How many records the tokens [begin, end) have for each peer. One warp.
MORI_DEVICE_INLINE PerRank countRecords(const Op& op, const Hosts& hosts, const Choices& choices, bool sends, uint32_t begin, uint32_t end) {
    PerRank records;
    for (uint32_t at = begin; sends && at < end; at += kWarpSize) {
        const uint32_t token = at + laneInWarp();
        records.count(token < end ? takers(op, hosts, choices.ranks(token)) : 0, op.world);
    }
    return records;
}

/// A warp writes what follows the row of a record.
MORI_DEVICE_INLINE void writeTail(const Op& op, const DispatchArgs& args, const Records& records, uint32_t served, uint32_t firstServed,
                                  char* tail, uint32_t token, const int32_t* slots) {
    for (uint32_t w = laneInWarp(); w < records.words; w += kWarpSize) {
        uint32_t value = 0;  // of weights that are not there
        if (w < served) {
            const uint32_t rank = firstServed + w;
            const uint32_t slot = uint32_t(slots[rank]);
            value = slot < op.world * op.maxRecv ? slot - rank * op.maxRecv : ~0u;
        } else if (w == served) {
            value = op.rank * op.positionStride + token;
        } else if (w <= served + op.topk) {
            value = uint32_t(args.indices[uint64_t(token) * op.topk + (w - served - 1)]);
        } else if (args.weights != nullptr) {
            value = reinterpret_cast<const uint32_t*>(args.weights)[uint64_t(token) * op.topk + (w - served - 1 - op.topk)];
        }
        storeOnce(tail + w * 4, value);
    }
    if (args.scaleBytes != 0) {
        warpCopy(tail + records.words * 4, static_cast<const char*>(args.scales) + uint64_t(token) * args.scaleBytes, args.scaleBytes);
    }
}

/// What the addresses may differ by that rows go to.
MORI_DEVICE_INLINE uint64_t targets(const Op& op, const Hosts& hosts) {
    uint64_t all = op.regions.dispatchOut | hosts.outgoing | hosts.peerBytes;
    for (uint32_t rank = 0; rank < op.world; rank++) {
        all |= isNear(hosts, rank) ? op.bases[rank] : 0;
    }
    return all;
}

/// A warp sends its run of the tokens of a chunk. slots and places are memory of the warp, a word for each rank.
MORI_DEVICE_INLINE void sendRun(const Op& op, const Hosts& hosts, const DispatchArgs& args, const Choices& choices, const Plan& plan,
                                const Outgoing& chunk, const Run& run, int32_t* slots, uint32_t* places, SpreadStream& stream) {
    const Peers peers(op, hosts, false);
    const Records records(op, hosts, peers, args.rowBytes);
    char* const base = memoryOf(op, op.rank);
    RowsAhead rows(stream, run, args, targets(op, hosts));
    rows.fetch();
    PerRank place = firstPlaces(op, choices, args.tokens, run.first, plan);
    PerRank record = countRecords(op, hosts, choices, plan.sends != 0, chunk.begin, run.first);
    Companions companions(op, args);
    Kept kept(op, args, choices);
    for (uint32_t token = run.first; token < run.end; token++) {
        const uint64_t ranks = plan.sends != 0 ? choices.ranks(token) : 0;
        const uint64_t taken = takers(op, hosts, ranks);
        if (run.part.part == 0) {
            companions.load(token);
            kept.load(token);
        }
        char* to[PerRank::kEach] = {};
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < PerRank::kEach; i++) {
            const uint32_t rank = i * kWarpSize + laneInWarp();
            if (rank >= op.world) {
                continue;
            }
            slots[rank] = int32_t(op.world * op.maxRecv);
            if ((ranks >> rank & 1) != 0) {
                const uint32_t slot = uint32_t(plan.bases[rank] + place.of[i]);
                slots[rank] = int32_t(rank * op.maxRecv + slot);
                place.of[i]++;
                to[i] = isNear(hosts, rank) ? memoryOf(op, rank) + op.regions.dispatchOut + slot * args.rowBytes + run.from : nullptr;
            }
            if ((taken >> rank & 1) != 0) {
                const uint64_t begin = records.chunk(hosts, hosts.outgoing, peers.numberAt(op.rank, rank), chunk.chunk);
                places[rank] = uint32_t(record.of[i]);
                record.of[i]++;
                to[i] = base + begin + kHeadBytes + places[rank] * records.bytes + run.from;
            }
        }
        rows.send(to);
        if (run.part.part != 0) {
            continue;
        }
        warpSync();
        for (uint64_t left = ranks & hosts.near; left != 0; left &= left - 1) {
            const uint32_t rank = lowestBit(left);
            companions.store(rank, uint32_t(slots[rank]) - rank * op.maxRecv);
        }
        for (uint64_t left = taken; left != 0; left &= left - 1) {
            const uint32_t rank = lowestBit(left);
            const uint32_t number = peers.numberAt(op.rank, rank);
            const uint64_t begin = records.chunk(hosts, hosts.outgoing, number, chunk.chunk);
            if (hosts.places != nullptr && laneInWarp() == 0) {
                hosts.places[uint64_t(number) * op.maxTokens + token] = places[rank];
            }
            writeTail(op, args, records, peers.served(), peers.firstServed(rank),
                      base + begin + kHeadBytes + places[rank] * records.bytes + records.tail, token, slots);
        }
        kept.store(slots);
        warpSync();
    }
}

/// One warp sends a chunk that all blocks have written, also where it has no records: each peer waits for it.
MORI_DEVICE_INLINE void sendChunk(const Op& op, const Hosts& hosts, const DispatchArgs& args, const Choices& choices, const Plan& plan,
                                  const Outgoing& chunk, uint64_t value) {
    const Peers peers(op, hosts, false);
    const Records records(op, hosts, peers, args.rowBytes);
    const PerRank counts = countRecords(op, hosts, choices, plan.sends != 0, chunk.begin, chunk.end);
    char* const base = memoryOf(op, op.rank);
    uint64_t all = 0;
    for (uint32_t number = 0; number < peers.count(); number++) {
        all |= uint64_t(1) << peers.rank(number);
    }
    MORI_DEVICE_UNROLL
    for (uint32_t i = 0; i < PerRank::kEach; i++) {
        const uint32_t rank = i * kWarpSize + laneInWarp();
        if (rank >= op.world || (all >> rank & 1) == 0) {
            continue;
        }
        const uint32_t count = uint32_t(counts.of[i]);
        const uint32_t mine = peers.numberAt(rank, op.rank);
        const uint64_t from = records.chunk(hosts, hosts.outgoing, peers.numberAt(op.rank, rank), chunk.chunk);
        *reinterpret_cast<ChunkHead*>(base + from) = {count, chunk.end == args.tokens, args.weights != nullptr, args.scaleBytes};
        sendFar(op, hosts, rank, records.chunk(hosts, hosts.incoming, mine, chunk.chunk), from, kHeadBytes + count * records.bytes,
                hosts.chunkFlags + (uint64_t(mine) * kMostChunks + chunk.chunk) * 8, value);
    }
    warpSync();
}

MORI_DEVICE_INLINE void sendChunks(const Op& op, const Hosts& hosts, const DispatchArgs& args, const Choices& choices, uint64_t number,
                                   Shared& shared) {
    const Records records(op, hosts, Peers(op, hosts, false), args.rowBytes);
    SpreadStream stream;
    Outgoing chunk{0, 0, 0};
    do {
        chunk.end = args.tokens - chunk.begin < records.tokens ? args.tokens : chunk.begin + records.tokens;
        const uint32_t tokens = chunk.end - chunk.begin;
        Run run(tokens, args.rowBytes);
        run.first += chunk.begin;
        run.end += chunk.begin;
        if (run.first < run.end) {
            sendRun(op, hosts, args, choices, shared.plan, chunk, run, shared.slots + warpInBlock() * kMostRanks,
                    shared.places + warpInBlock() * kMostRanks, stream);
        }
        stream.finish();
        if (isLastOfChunk(hosts, chunk.chunk, shared.plan.last) && warpInBlock() == 0) {
            sendChunk(op, hosts, args, choices, shared.plan, chunk, flagValue(number, args.signature));
        }
        chunk.chunk++;
        chunk.begin = chunk.end;
    } while (chunk.begin < args.tokens);
}

MORI_DEVICE_INLINE bool send(const Op& op, const Hosts& hosts, const DispatchArgs& args, uint64_t number, Shared& shared) {
    Plan& plan = shared.plan;
    const Choices choices(op, args);
    countRows(op, choices, args.tokens, plan);
    if (blockInGrid() == 0 && warpInBlock() == 0) {
        publishAll(op, hosts, plan, number, args.signature);
    }
    if (!blockAwaitsRanks(op, hosts, op.regions.published, flagValue(number, args.signature), kEveryone, false, plan.last) ||
        !admit(op, number, CountsBehindFlags(op, number), plan)) {
        return false;
    }
    if (blockInGrid() == 0) {
        keepBlocks(op, hosts, number, plan);
    }
    sendChunks(op, hosts, args, choices, number, shared);
    return true;
}

/// A warp copies its part of a record to where it belongs.
MORI_DEVICE_INLINE bool place(const Op& op, const Records& records, const ChunkHead& head, uint64_t rowBytes, uint32_t served, uint32_t firstServed,
                              const char* record, Part part) {
    constexpr uint32_t kLine = 128;
    const uint32_t lines = uint32_t((rowBytes + kLine - 1) / kLine);
    const uint64_t from = uint64_t(part.begin(lines)) * kLine;
    const uint64_t upTo = uint64_t(part.end(lines)) * kLine;
    const uint64_t bytes = (upTo < rowBytes ? upTo : rowBytes) - from;
    const char* const tail = record + records.tail;
    const char* const words = tail + (served + 1) * 4;
    bool can = true;
    for (uint32_t at = 0; at < served; at += kWarpSize) {
        const uint32_t slot = at + laneInWarp() < served ? loadOnce<uint32_t>(tail + (at + laneInWarp()) * 4) : ~0u;
        const bool goes = slot < op.maxRecv;
        can = can && (goes || slot == ~0u);
        const uint32_t rank = firstServed + at + laneInWarp();
        char* const to = goes ? memoryOf(op, rank) + op.regions.dispatchOut + slot * rowBytes + from : nullptr;
        const uint64_t targets = warpBallot(goes);
        if (targets != 0) {
            spread(to, record + from, bytes);
        }
        for (uint64_t left = part.part == 0 ? targets : 0; left != 0; left &= left - 1) {
            const uint32_t lane = lowestBit(left);
            const uint64_t row = warpBroadcast(slot, lane);
            char* const base = memoryOf(op, firstServed + at + lane);
            warpCopy(base + op.regions.dispatchOutIndices + row * op.topk * 4, words, op.topk * 4);
            if (head.weights != 0) {
                warpCopy(base + op.regions.dispatchOutWeights + row * op.topk * 4, words + op.topk * 4, op.topk * 4);
            }
            if (head.scales != 0) {
                warpCopy(base + op.regions.dispatchOutScales + row * head.scales, tail + records.words * 4, head.scales);
            }
            if (laneInWarp() == 0) {
                storeOnce(base + op.regions.srcPositions + row * 4, loadOnce<uint32_t>(tail + served * 4));
            }
        }
    }
    return warpBallot(!can) == 0;
}

/// A warp's share of a chunk that has come. False: nobody writes such a chunk.
MORI_DEVICE_INLINE bool placeChunk(const Op& op, const Hosts& hosts, const Peers& peers, const Records& records, uint64_t rowBytes, const char* chunk,
                                   const ChunkHead& head) {
    if (head.records > records.tokens || (head.scales != 0 && head.scales != hosts.scaleBytes)) {
        return false;
    }
    const Parts parts(head.records, rowBytes, gridWarps());
    for (uint32_t item = warpInGrid(); item < head.records * parts.each; item += gridWarps()) {
        const char* const record = chunk + kHeadBytes + item / parts.each * records.bytes;
        if (!place(op, records, head, rowBytes, peers.served(), peers.firstServed(op.rank), record, {item % parts.each, parts.each})) {
            return false;
        }
    }
    return true;
}

/// A warp's share of all records that come here.
MORI_DEVICE_INLINE void placeAll(const Op& op, const Hosts& hosts, const DispatchArgs& args, uint64_t value) {
    const Peers peers(op, hosts, false);
    const Records records(op, hosts, peers, args.rowBytes);
    const char* const base = memoryOf(op, op.rank);
    uint64_t open = (uint64_t(1) << peers.count()) - 1;  // peers whose last chunk has not come
    bool good = true;
    for (uint32_t chunk = 0; open != 0 && good; chunk++) {
        for (uint64_t left = open; left != 0 && good; left &= left - 1) {
            const uint32_t number = lowestBit(left);
            bool came = true;
            if (laneInWarp() == 0) {
                const auto* const flags = reinterpret_cast<const uint64_t*>(base + hosts.chunkFlags) + uint64_t(number) * kMostChunks;
                came = awaitWord(op, hosts, flags + chunk, peers.rank(number), value, false);
            }
            if (warpBallot(!came) != 0) {
                return;
            }
            warpSync();  // what one lane has seen come is there for all
            const char* const at = base + records.chunk(hosts, hosts.incoming, number, chunk);
            const ChunkHead head = *reinterpret_cast<const ChunkHead*>(at);
            good = placeChunk(op, hosts, peers, records, args.rowBytes, at, head) && (head.last != 0 || chunk + 1 < kMostChunks);
            open &= ~(uint64_t(head.last != 0) << number);
        }
    }
    if (!good) {
        breakOp(op, Fault::counts);
    }
}

/// One warp tells that records which came here are where they belong, in the names of those they are from.
MORI_DEVICE_INLINE void tellArrived(const Op& op, const Hosts& hosts, uint64_t value) {
    const Peers peers(op, hosts, false);
    const uint64_t whom = hosts.hierarchical != 0 ? hosts.near : uint64_t(1) << op.rank;
    for (uint32_t rank = laneInWarp(); rank < op.world; rank += kWarpSize) {
        for (uint32_t number = 0; (whom >> rank & 1) != 0 && number < peers.count(); number++) {
            atomicStore<Scope::system, Order::release>(flagOf(op, op.regions.arrived, rank, peers.rank(number)), value);
        }
    }
}

MORI_DEVICE_INLINE void receive(const Op& op, const Hosts& hosts, const DispatchArgs& args, uint64_t number, uint32_t& shared) {
    const uint64_t value = flagValue(number, args.signature);
    placeAll(op, hosts, args, value);
    if (!isLastBlock<Scope::system>(op, 1, shared) || warpInBlock() != 0 || warpBallot(isBroken(op)) != 0) {
        return;
    }
    tellArrived(op, hosts, value);
    if (awaitRanks(op, hosts, op.regions.arrived, value, kEveryone, false) && laneInWarp() == 0) {
        *op.received = atomicLoad<Scope::device, Order::relaxed>(&op.progress->incoming);
    }
}

}  // namespace
}  // namespace mori::ep

/// Blocks of up to kMostThreads.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_dispatch_hosts(const mori::ep::HostsDispatchArgs args) {
    using namespace mori::ep;
    const Op& op = *args.call.op;
    const Hosts& hosts = *args.hosts;
    MORI_DEVICE_SHARED(Shared, shared);
    Progress& progress = *op.progress;
    if (blockIsBroken(op, shared.plan.last)) {
        return;
    }
    uint64_t number = progress.dispatches;
    if ((args.call.phases & kSend) != 0) {
        number++;
        if (!send(op, hosts, args.call, number, shared)) {
            return;
        }
        if (isLastBlock<Scope::system>(op, 0, shared.plan.last) && warpInBlock() == 0) {
            raiseAt(op, hosts, op.regions.arrived, flagValue(number, args.call.signature), hosts.near);
            if (laneInWarp() == 0) {
                progress.dispatches = number;
                progress.tokens = args.call.tokens;
                hosts.progress->rowBytes = args.call.rowBytes;
                atomicStore<Scope::device, Order::relaxed>(&progress.incoming, shared.plan.totals[op.rank]);
                if (shared.plan.sends != 0) {
                    progress.overflow[0] = -1;
                }
            }
        }
    }
    if ((args.call.phases & kRecv) != 0) {
        receive(op, hosts, args.call, number, shared.plan.last);
    }
}
