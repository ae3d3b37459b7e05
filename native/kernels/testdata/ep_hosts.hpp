// SPDX-License-Identifier: MIT
// Ranks on several hosts on the CPU: loads and stores reach ranks of the same host, and a proxy's side in few lines, or a reference NIC for each pair of
// ranks, moves the rest. The model is that of one host, with hosts that sum. A test includes it once.
#pragma once

#include "ep.hpp"

#include <atomic>

#include "mori/ep/hosts.hpp"
#include "mori/proxy/device.hpp"
#include "nic_queue.hpp"

extern "C" void mori_ep_dispatch_hosts(mori::ep::HostsDispatchArgs args);
extern "C" void mori_ep_combine_hosts(mori::ep::HostsCombineArgs args);
extern "C" void mori_ep_combine_forward(mori::ep::HostsCombineArgs args);

namespace {

namespace proxy = mori::proxy;
using mori::device::Order;
using mori::device::Scope;

/// The host's side of a rank's queue: puts, and puts with a signal, to any rank. It naps before some commands, so that what was posted is late.
class Server {
public:
    explicit Server(uint64_t seed) : random_(uint32_t(seed)) {}

    /// regions are where those of all PEs begin; local is this side's.
    void start(uint64_t local, const std::vector<uint64_t>& regions, uint64_t limit) {
        regions_ = regions;
        status_.resize(regions.size());
        queue_.version = proxy::kQueueVersion, queue_.log = kLog, queue_.pes = uint32_t(regions.size());
        queue_.ring = ring_, queue_.details = details_, queue_.results = results_, queue_.board = &board_;
        queue_.status = status_.data(), queue_.state = &state_, queue_.busy = busy_;
        queue_.local = local, queue_.waitLimit = limit;
        thread_ = std::thread([this] { serve(); });
    }
    ~Server() {
        stop_ = true;
        thread_.join();
    }

    const proxy::Queue* queue() const { return &queue_; }
    uint64_t commands() const { return taken_; }
    uint64_t bytes() const { return moved_; }

    /// From now on nothing gets to a PE.
    void fail(uint32_t pe, uint32_t status) { mori::device::atomicStore<Scope::system, Order::relaxed>(&status_[pe], status); }

private:
    static constexpr uint32_t kLog = 4;
    static constexpr uint64_t kSlots = 1 << kLog;

    void serve() {
        for (uint64_t position = 0, idle = 0; !stop_;) {
            const proxy::Command& slot = ring_[position % kSlots];
            const uint64_t lap = ((position >> kLog) & 1) ^ 1;
            const uint64_t first = mori::device::atomicLoad<Scope::system, Order::acquire>(&slot.first);
            const uint64_t second = mori::device::atomicLoad<Scope::system, Order::acquire>(&slot.second);
            if (first >> proxy::kLapShift != lap || second >> proxy::kLapShift != lap) {
                mori::device::cpu::rest(idle);
                idle += 10'000;  // nanoseconds, or so
                continue;
            }
            idle = 0;
            mori::device::fence<Scope::system>();
            if (random_() % 4 == 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
            }
            act(first, second, details_[position % kSlots]);
            position++;
            taken_ = position;
            mori::device::atomicStore<Scope::system, Order::release>(&board_.ended, position);
        }
    }

    void act(uint64_t first, uint64_t second, const proxy::Detail& detail) {
        constexpr uint64_t kPlaces = (uint64_t(1) << proxy::kPlaceBits) - 1;
        const uint32_t pe = uint32_t(first >> proxy::kPlaceBits) & 0xffff;
        const auto kind = proxy::Kind(first >> proxy::kKindShift & 31);
        uint64_t to = first & kPlaces, from = queue_.local + (second & kPlaces), bytes = second >> proxy::kPlaceBits & ((1 << proxy::kBytesBits) - 1);
        if ((first & proxy::kHasDetail) != 0) {
            to = detail.remote, from = detail.local, bytes = detail.bytes;
        }
        require(pe < regions_.size(), "a PE that is there");
        if (mori::device::atomicLoad<Scope::system, Order::relaxed>(&status_[pe]) != 0) {
            return;
        }
        moved_ += bytes;
        memcpy(reinterpret_cast<void*>(regions_[pe] + to), reinterpret_cast<const void*>(from), bytes);
        if (kind == proxy::Kind::putSignal) {
            require(proxy::Atomic(second & 0xff) == proxy::Atomic::set, "signals are set, which the memory of GPUs can have");
            auto* const word = reinterpret_cast<uint64_t*>(regions_[pe] + detail.signal);
            mori::device::atomicStore<Scope::system, Order::release>(word, detail.value);
        } else {
            require(kind == proxy::Kind::put, "a put");
        }
    }

    alignas(16) proxy::Command ring_[kSlots] = {};
    proxy::Detail details_[kSlots] = {};
    proxy::Result results_[kSlots] = {};
    proxy::Board board_ = {};
    proxy::State state_ = {};
    uint32_t busy_[kSlots] = {};
    std::vector<uint32_t> status_;
    std::vector<uint64_t> regions_;
    proxy::Queue queue_ = {};
    std::mt19937 random_;
    std::atomic<bool> stop_{false};
    std::atomic<uint64_t> taken_{0}, moved_{0};
    std::thread thread_;
};

uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

/// How ranks are spread over hosts, and whether kernels post to NICs.
struct Spread {
    uint32_t perHost;
    bool forwards;
    uint32_t chunkBytes;
    bool nics = false;
    uint32_t lost = ~0u;  ///< a rank whose memory no NIC takes

    /// Whether hosts sum.
    bool sums() const { return forwards && perHost > 1; }
};

/// What a rank has behind its regions: flags, records and rows.
struct Behind {
    Behind(const Shape& shape, const Spread& spread) {
        const uint64_t far = shape.world - spread.perHost;
        const uint64_t peers = spread.forwards ? shape.world / spread.perHost - 1 : far;
        const uint64_t served = spread.forwards ? spread.perHost : 1;
        const uint64_t record = aligned(shape.rowBytes) + (served + 1 + 2 * shape.topk) * 4 + shape.scaleBytes + 16;
        const uint64_t least = (shape.maxTokens + kMostChunks - 1) / kMostChunks * record;
        peerBytes = aligned(shape.maxTokens * record + std::max(least, uint64_t(spread.chunkBytes)) + kMostChunks * kHeadBytes);
        const uint64_t rowBytes = shape.rowBytes + shape.rowBytes * 4 + shape.topk * 4;  // a scale for each element, at most
        sums = spread.sums() ? peers * shape.maxTokens * (shape.rowBytes * 2 + shape.topk * 4 + 32) : 0;
        rows = std::max(shape.maxTokens * std::min<uint64_t>(far, shape.topk) * rowBytes + 3 * 256, sums);
        places = spread.sums() ? peers * shape.maxTokens : 0;
        flags = aligned(far * kMostChunks * 8);
        requests = 2 * shape.world * kLineBytes;
        size = 2 * flags + requests + 2 * peers * peerBytes + rows + aligned(sums);
    }
    uint64_t flags, requests, peerBytes, rows, sums, size;
    uint64_t places;  ///< beside them
};

/// A world whose ranks are on several hosts.
class HostsWorld : public World {
public:
    HostsWorld(const Shape& shape, const Spread& spread, uint64_t limit = 60'000'000'000)
        : World(shape, limit, Behind(shape, spread).size), spread_(spread), progress_(shape.world), hosts_(shape.world), places_(shape.world),
          peers_(shape.world), networks_(shape.world), waitLimit_(limit) {
        sends_ = false;
        const Behind has(shape, spread);
        std::vector<uint64_t> regions;
        for (uint32_t r = 0; r < shape.world; r++) {
            regions.push_back(uint64_t(base(r)) - kAhead);
        }
        const uint64_t peers = spread.forwards ? shape.world / spread.perHost - 1 : shape.world - spread.perHost;
        for (uint32_t r = 0; r < shape.world; r++) {
            servers_.push_back(std::make_unique<Server>(r + 1));
            servers_[r]->start(regions[r], regions, limit);
            const uint32_t first = r / spread.perHost * spread.perHost;
            Hosts& at = hosts_[r];
            at.network = introduce(r, regions, kAhead + behind() + has.size, spread), at.progress = &progress_[r];
            at.near = ((uint64_t(1) << spread.perHost) - 1) << first;
            at.perHost = spread.perHost, at.hierarchical = spread.forwards;
            at.chunkFlags = behind(), at.rowFlags = at.chunkFlags + has.flags;
            at.requests = at.rowFlags + has.flags;
            at.outgoing = at.requests + has.requests, at.peerBytes = has.peerBytes;
            at.incoming = at.outgoing + peers * has.peerBytes, at.sums = at.incoming + peers * has.peerBytes;
            at.rows = at.sums + aligned(has.sums);
            places_[r].resize(has.places);
            at.places = has.places != 0 ? places_[r].data() : nullptr;
            at.scaleBytes = shape.scaleBytes, at.chunkBytes = spread.chunkBytes;
        }
        for (uint32_t r = 0; r < shape.world; r++) {
            for (uint32_t d = 0; d < shape.world; d++) {
                if ((hosts_[r].near >> d & 1) == 0) {
                    rank(r).op.bases[d] = 0;
                }
            }
        }
    }

    void runDispatch(uint32_t r, const DispatchArgs& args, uint32_t blocks, uint32_t threads) override {
        launch(blocks, threads, [&] { mori_ep_dispatch_hosts({args, &hosts_[r]}); });
    }

    void runCombine(uint32_t r, const CombineArgs& args, uint32_t blocks, uint32_t threads) override {
        const bool sums = spread_.sums() && !replayed() && args.route == nullptr;
        launch(blocks, threads, [&] { (sums ? mori_ep_combine_forward : mori_ep_combine_hosts)({args, &hosts_[r]}); });
    }

    Server& server(uint32_t r) { return *servers_[r]; }

    /// What all ranks' servers have moved.
    uint64_t bytes() const {
        uint64_t total = 0;
        for (const auto& server : servers_) {
            total += server->bytes();
        }
        return total;
    }

protected:
    uint32_t summer(uint32_t of, uint32_t rank) const override {
        const uint32_t host = rank / spread_.perHost;
        const bool here = !spread_.sums() || routed() || replayed() || host == of / spread_.perHost;
        return here ? of : host * spread_.perHost + of % spread_.perHost;
    }

private:
    /// How a rank reaches all others, by its queue or by NICs.
    const mori::shmem::State* introduce(uint32_t r, const std::vector<uint64_t>& regions, uint64_t bytes, const Spread& spread) {
        const uint32_t all = uint32_t(regions.size());
        peers_[r].assign(all, {uint64_t(servers_[r]->queue()), mori::shmem::Transport::remote, 0});
        for (uint32_t peer = 0; spread.nics && peer < all; peer++) {
            if (peer / spread.perHost == r / spread.perHost) {
                continue;
            }
            const mori::nic::Memory mine{regions[r], bytes, r + 1, r + 1}, theirs{regions[peer], bytes, peer + 1, peer + 1};
            nics_.push_back(std::make_unique<NicQueue>(r * all + peer, std::vector<mori::nic::Memory>{mine, peer != spread.lost ? theirs : mine}));
            reached_.push_back(std::make_unique<mori::shmem::NicPeer>(
                mori::shmem::NicPeer{uint64_t(nics_.back()->queue()), uint64_t(servers_[r]->queue()), mine, theirs}));
            peers_[r][peer] = {uint64_t(reached_.back().get()), mori::shmem::Transport::nic, 0};
        }
        networks_[r] = {mori::shmem::kStateVersion, int32_t(r), int32_t(all), all - spread.perHost, regions[r], bytes, 0, waitLimit_, peers_[r].data(), nullptr};
        return &networks_[r];
    }

    static constexpr uint64_t kAhead = 64;  // bytes of a region ahead of the op's memory; nobody touches them
    const Spread spread_;
    std::vector<HostsProgress> progress_;
    std::vector<Hosts> hosts_;
    std::vector<std::vector<uint32_t>> places_;
    std::vector<std::vector<mori::shmem::Peer>> peers_;
    std::vector<mori::shmem::State> networks_;
    std::vector<std::unique_ptr<Server>> servers_;
    std::vector<std::unique_ptr<NicQueue>> nics_;
    std::vector<std::unique_ptr<mori::shmem::NicPeer>> reached_;
    uint64_t waitLimit_;
};

}  // namespace
