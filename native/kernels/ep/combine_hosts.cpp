// SPDX-License-Identifier: MIT
// Combine where some ranks are on other hosts. Ranks of this host read each other's rows, as in combine.cpp; the rows of a rank that is far are sent to
// it, a chunk at a time, and it sums each token as soon as its rows are there.
#include "mori/ep/between_sums.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

/// Where rows of ranks that are far lie, as offsets in the memory of the rank whose tokens they are of.
struct Columns {
    uint64_t rowBytes, scaleBytes, weightBytes;  // of a row
    uint64_t rows, scales, weights;
    uint64_t most;   // rows for which there is room
    uint32_t chunk;  // rows of a chunk

    MORI_DEVICE_INLINE Columns(const Op& op, const Hosts& hosts, const CombineArgs& args) {
        constexpr uint64_t kAligned = 256;
        const uint32_t far = op.world - hosts.perHost;
        most = uint64_t(op.maxTokens) * (far < op.topk ? far : op.topk);
        rowBytes = uint64_t(args.hidden) * wayBytes(args);
        scaleBytes = args.transport == uint32_t(Transport::blockwise) ? args.scaleBlocks * sizeof(float) : 0;
        weightBytes = op.topk * sizeof(float);
        rows = hosts.rows;
        scales = rows + (most * rowBytes + kAligned - 1) / kAligned * kAligned;
        weights = scales + (most * scaleBytes + kAligned - 1) / kAligned * kAligned;
        chunk = chunkOf(op, hosts, rowBytes);
    }
};

/// The line of Hosts::requests for a rank, as an offset.
MORI_DEVICE_INLINE uint64_t requestOf(const Op& op, const Hosts& hosts, uint32_t side, uint32_t rank) {
    return hosts.requests + (uint64_t(side) * op.world + rank) * kLineBytes;
}

/// A warp finds the rows that the tokens of a routing map have at a rank: they follow each other.
MORI_DEVICE_INLINE Block findBlock(const Op& op, const CombineArgs& args, uint32_t rank) {
    Block block{0, 0, 0, 0};
    for (uint32_t at = 0; at < args.tokens; at += kWarpSize) {
        const uint32_t token = at + laneInWarp();
        uint32_t slot = ~0u;
        for (uint32_t k = 0; token < args.tokens && k < op.topk; k++) {
            const uint32_t choice = uint32_t(args.route[uint64_t(token) * op.topk + k]);
            slot = choice / op.maxRecv == rank ? choice % op.maxRecv : slot;
        }
        const uint64_t have = warpBallot(slot != ~0u);
        if (have != 0 && block.rows == 0) {
            block.first = uint32_t(warpBroadcast(slot, lowestBit(have)));
        }
        block.rows += bitCount(have);
    }
    return block;
}

/// One block asks the ranks that are far for the rows of a routing map.
MORI_DEVICE_INLINE void ask(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t number) {
    const Peers far(op, hosts, true);
    Block* const blocks = hosts.progress->routed;
    for (uint32_t i = warpInBlock(); i < far.count(); i += warpsPerBlock()) {
        const Block block = findBlock(op, args, far.rank(i));
        if (laneInWarp() == 0) {
            blocks[far.rank(i)] = block;
        }
    }
    blockSync();
    if (threadInBlock() == 0) {
        uint32_t place = 0;
        for (uint32_t i = 0; i < far.count(); i++) {
            const uint32_t rank = far.rank(i);
            blocks[rank].place = place;
            place += blocks[rank].rows;
            const uint64_t mine = requestOf(op, hosts, 1, rank) + kRequestBytes;
            const uint64_t theirs = requestOf(op, hosts, 0, op.rank);
            *reinterpret_cast<Block*>(memoryOf(op, op.rank) + mine) = blocks[rank];
            sendFar(op, hosts, rank, theirs + kRequestBytes, mine, sizeof(Block), theirs, flagValue(number, args.signature));
        }
        atomicStore<Scope::device, Order::release>(&hosts.progress->routes, number);
    }
}

/// A thread waits for what a rank asks for. False: the op is broken.
MORI_DEVICE_INLINE bool awaitAsk(const Op& op, const Hosts& hosts, const Columns& columns, uint32_t rank, uint64_t value, Block& block) {
    const char* const line = memoryOf(op, op.rank) + requestOf(op, hosts, 0, rank);
    if (!awaitWord(op, hosts, reinterpret_cast<const uint64_t*>(line), rank, value, false)) {
        return false;
    }
    block = *reinterpret_cast<const Block*>(line + kRequestBytes);
    const bool can = block.rows <= op.maxTokens && uint64_t(block.first) + block.rows <= op.maxRecv && uint64_t(block.place) + block.rows <= columns.most;
    if (!can) {
        breakOp(op, Fault::counts);
    }
    return can;
}

/// A thread sends a rank that is far the rows of its tokens.
MORI_DEVICE_INLINE void sendRows(const Op& op, const Hosts& hosts, const CombineArgs& args, uint32_t rank, uint32_t mine, uint64_t value) {
    const Columns columns(op, hosts, args);
    Block block = hosts.progress->made[rank];
    if (args.route != nullptr && !awaitAsk(op, hosts, columns, rank, value, block)) {
        return;
    }
    const uint64_t base = op.bases[op.rank];
    // A signal comes after all puts before it, so that the first chunk tells of these, too.
    auto put = [&](uint64_t to, uint64_t from, uint64_t each) {
        const uint64_t status = shmem::putTo(*hosts.network, int(rank), base + to + block.place * each, base + from + block.first * each, block.rows * each);
        if (status != 0) {
            lose(op, nullptr, value, rank, status);
        }
    };
    if (block.rows != 0 && args.weights != nullptr) {
        put(columns.weights, op.regions.combineInWeights, columns.weightBytes);
    }
    if (block.rows != 0 && columns.scaleBytes != 0) {
        put(columns.scales, op.regions.combineInScales, columns.scaleBytes);
    }
    for (uint32_t at = 0, chunk = 0; at < block.rows; at += columns.chunk, chunk++) {
        const uint32_t rows = block.rows - at < columns.chunk ? block.rows - at : columns.chunk;
        sendFar(op, hosts, rank, columns.rows + (block.place + at) * columns.rowBytes,
                op.regions.combineIn + (block.first + at) * columns.rowBytes, rows * columns.rowBytes,
                hosts.rowFlags + (uint64_t(mine) * kMostChunks + chunk) * 8, value);
    }
}

MORI_DEVICE_INLINE bool send(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t number, uint32_t& shared) {
    // Nobody reads the rows of the last combine any more, here or where they were sent.
    if (!blockAwaitsRanks(op, hosts, op.regions.pulled, flagValue(number - 1, 0), kEveryone, true, shared)) {
        return false;
    }
    if (args.route != nullptr && blockInGrid() == 0) {
        ask(op, hosts, args, number);
    }
    bool last = false;
    if (!putRows(op, args, shared, last)) {
        return false;
    }
    if (!last) {
        return true;
    }
    const uint64_t value = flagValue(number, args.signature);
    if (warpInBlock() == 0) {
        raiseAt(op, hosts, op.regions.ready, value, hosts.near);
    }
    const Peers far(op, hosts, true);
    for (uint32_t i = warpInBlock(); i < far.count(); i += warpsPerBlock()) {
        const uint32_t rank = far.rank(i);
        if (laneInWarp() == 0) {
            sendRows(op, hosts, args, rank, far.numberAt(rank, op.rank), value);
        }
    }
    return true;
}

/// Where rows are: with the ranks of this host, or where those of other ranks come to.
class AtRanksOrHere {
public:
    MORI_DEVICE_INLINE AtRanksOrHere(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t value)
        : op_(op), hosts_(hosts), columns_(op, hosts, args), near_(op, args, columns_.rowBytes),
          blocks_(args.route != nullptr ? hosts.progress->routed : hosts.progress->sent), value_(value) {}

    MORI_DEVICE_INLINE uint32_t slot(uint32_t choice) const { return choice; }

    /// A row of a rank that is far is waited for. If it does not come, the op is broken, and the row is any.
    MORI_DEVICE_INLINE Row row(uint32_t token, uint32_t rank, uint64_t row) const {
        if (isNear(hosts_, rank)) {
            return near_.row(token, rank, row);
        }
        const Block& block = blocks_[rank];
        uint32_t at = uint32_t(row) - block.first;
        if (at >= block.rows) {
            breakOp(op_, Fault::counts);
            at = 0;
        }
        const char* const base = memoryOf(op_, op_.rank);
        const uint32_t number = Peers(op_, hosts_, true).numberAt(op_.rank, rank);
        const auto* const flags = reinterpret_cast<const uint64_t*>(base + hosts_.rowFlags) + uint64_t(number) * kMostChunks;
        awaitWord(op_, hosts_, flags + at / columns_.chunk, rank, value_, false);
        const uint64_t place = block.place + at;
        return {base + columns_.rows + place * columns_.rowBytes, reinterpret_cast<const float*>(base + columns_.scales + place * columns_.scaleBytes),
                reinterpret_cast<const float*>(base + columns_.weights + place * columns_.weightBytes), false};
    }

private:
    const Op& op_;
    const Hosts& hosts_;
    Columns columns_;
    AtRanks near_;
    const Block* blocks_;
    uint64_t value_;
};

MORI_DEVICE_INLINE void receive(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t number, Summing& shared) {
    const uint64_t value = flagValue(number, args.signature);
    if (!blockAwaitsRanks(op, hosts, op.regions.ready, value, hosts.near, false, shared.word)) {
        return;
    }
    // The block that asked knows where the rows of a routing map come to.
    uint64_t routes = number;
    const bool routed = args.route == nullptr || pollUntil(
        op.waitLimit,
        [&] {
            routes = atomicLoad<Scope::device, Order::acquire>(&hosts.progress->routes);
            return routes == number || isBroken(op);
        },
        [&] { return isAborted(op); });
    if (!routed) {
        breakBy(op, &hosts.progress->routes, flagValue(number, 0), flagValue(routes, 0), op.rank, false);
    }
    const AtRanksOrHere where(op, hosts, args, value);
    sumAsTyped(op, args, OwnTokens<AtRanksOrHere>(op, args, where), shared.terms[warpInBlock()], Team::all(), [] { return true; });
    endCombine(op, hosts, args, number, shared.word);
}

}  // namespace
}  // namespace mori::ep

/// Blocks of up to kMostThreads.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_combine_hosts(const mori::ep::HostsCombineArgs args) {
    using namespace mori::ep;
    MORI_DEVICE_SHARED(Summing, shared);
    combineBetweenHosts(args, shared, send, receive);
}
