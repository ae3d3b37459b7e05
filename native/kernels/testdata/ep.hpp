// SPDX-License-Identifier: MIT
// A few ranks on the CPU, threads for lanes, and a model of few lines that holds every row of a dispatch and every sum of a combine. A test includes
// it once.
#pragma once

#include "mori/ep/op.hpp"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "mori/device/number.hpp"
#include "mori/device/poll.hpp"
#include "threads.hpp"

extern "C" void mori_ep_dispatch(mori::ep::DispatchArgs args);
extern "C" void mori_ep_combine(mori::ep::CombineArgs args);
extern "C" void mori_ep_count_local(mori::ep::CountLocalArgs args);

using namespace mori::ep;
using mori::device::Number;

static void require(bool ok, const char* what) {
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

struct Shape {
    uint32_t world, topk, perRank, maxTokens, rowBytes, scaleBytes, maxRecv;
};

enum class Routing { uniform, skewed, one, nowhere, sentinels };

/// What a rank brings to a dispatch.
struct Tokens {
    uint32_t count = 0;
    std::vector<unsigned char> rows, scales;
    std::vector<int32_t> indices;
    std::vector<float> weights;
};

/// A rank's memory of the op, and what its kernels keep.
struct Rank {
    std::unique_ptr<unsigned char[]> memory;
    Op op{};
    Progress progress{};
    Notice notice{};
    int32_t received = 0;
    std::vector<int32_t> slots;
    std::vector<float> weights;
};

/// What a number is when it has been one of a type.
inline float rounded(float value, Number type) {
    using namespace mori::device;
    return type == Number::float32 ? value : toFloat<Number::bfloat16>(fromFloat<Number::bfloat16>(value, false));
}

/// Numbers of a type as they lie in memory.
inline std::vector<unsigned char> encoded(const std::vector<float>& values, Number type) {
    const uint32_t each = mori::device::numberBytes(type);
    std::vector<unsigned char> bytes(values.size() * each + 16);
    for (size_t i = 0; i < values.size(); i++) {
        uint32_t bits = 0;
        memcpy(&bits, &values[i], 4);
        bits >>= 32 - 8 * each;  // values are rounded
        memcpy(&bytes[i * each], &bits, each);
    }
    return bytes;
}

/// A sum in the order of its terms, which begins with the first.
struct Sum {
    bool begun = false;
    float value = 0;
    void add(float term) {
        value = begun ? value + term : term;
        begun = true;
    }
};

class World {
public:
    /// more: bytes that each rank has behind its regions.
    explicit World(const Shape& shape, uint64_t waitLimit = 60'000'000'000, uint64_t more = 0)
        : shape_(shape), ranks_(shape.world), sends_(shape.maxRecv >= shape.world * shape.maxTokens) {
        overflow_.resize(shape.world);
        const uint64_t flags = uint64_t(shape.world) * kLineBytes;
        const uint64_t rows = shape.maxRecv;
        const uint64_t most = uint64_t(shape.rowBytes) * 4;  // combine may have larger elements
        Regions& at = regions_;
        uint64_t size = 0;
        auto take = [&](uint64_t bytes) {
            const uint64_t begin = size;
            size += (bytes + 255) / 256 * 256;
            return begin;
        };
        at.counts = take(2 * shape.world * shape.world * 8);
        at.published = take(flags), at.arrived = take(flags), at.ready = take(flags), at.pulled = take(flags);
        at.dispatchOut = take(rows * shape.rowBytes);
        at.dispatchOutWeights = take(rows * shape.topk * 4), at.dispatchOutIndices = take(rows * shape.topk * 4);
        at.dispatchOutScales = take(rows * shape.scaleBytes), at.srcPositions = take(rows * 4);
        at.combineIn = take(rows * most), at.combineInScales = take(rows * most), at.combineInWeights = take(rows * shape.topk * 4);
        at.combineOut = take(shape.maxTokens * most), at.combineOutWeights = take(shape.maxTokens * shape.topk * 4);
        behind_ = size;
        for (Rank& rank : ranks_) {
            rank.memory = std::make_unique<unsigned char[]>(size + more + 256);
            rank.slots.resize(size_t(shape.maxTokens) * shape.topk);
            rank.weights.resize(size_t(shape.maxTokens) * shape.topk);
        }
        for (uint32_t r = 0; r < shape.world; r++) {
            Rank& rank = ranks_[r];
            for (uint32_t d = 0; d < shape.world; d++) {
                rank.op.bases[d] = (reinterpret_cast<uint64_t>(ranks_[d].memory.get()) + 255) / 256 * 256;
            }
            rank.op.regions = at;
            rank.op.world = shape.world, rank.op.rank = r, rank.op.topk = shape.topk;
            rank.op.expertsPerRank = shape.perRank, rank.op.experts = shape.perRank * shape.world;
            rank.op.maxRecv = shape.maxRecv, rank.op.maxTokens = shape.maxTokens;
            rank.op.positionStride = shape.world * shape.maxTokens;
            rank.op.waitLimit = waitLimit;
            rank.op.progress = &rank.progress, rank.op.notice = &rank.notice, rank.op.received = &rank.received;
            rank.op.slots = rank.slots.data(), rank.op.weights = rank.weights.data();
        }
    }

    virtual ~World() = default;
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    /// Every rank does it on threads of its own.
    template <class Work>
    void each(Work work) {
        std::vector<std::thread> running;
        for (uint32_t r = 0; r < shape_.world; r++) {
            running.emplace_back([&, r] { work(r); });
        }
        for (std::thread& thread : running) {
            thread.join();
        }
    }

    void dispatch(const std::vector<Tokens>& all, uint32_t blocks, uint32_t threads, bool split, bool replay) {
        std::vector<std::vector<int32_t>> routes(shape_.world);
        replayed_ = replay;
        for (uint32_t r = 0; replay && r < shape_.world; r++) {
            routes[r] = ranks_[r].slots;
        }
        each([&](uint32_t r) {
            const Tokens& mine = all[r];
            DispatchArgs args{};
            args.op = &ranks_[r].op;
            args.input = mine.rows.data(), args.indices = mine.indices.data();
            args.weights = mine.weights.empty() ? nullptr : mine.weights.data();
            args.scales = mine.scales.empty() ? nullptr : mine.scales.data();
            args.route = replay ? routes[r].data() : nullptr;
            args.rowBytes = shape_.rowBytes, args.scaleBytes = mine.scales.empty() ? 0 : shape_.scaleBytes;
            args.tokens = mine.count, args.signature = 7;
            args.phases = split ? uint32_t(kSend) : kSend | kRecv;
            runDispatch(r, args, blocks, threads);
            if (split) {
                args.phases = kRecv;
                runDispatch(r, args, 1, threads);
            }
        });
        check(all);
    }

    /// The model: what every rank must have received.
    void check(const std::vector<Tokens>& all) {
        std::vector<uint32_t> received(shape_.world);
        for (uint32_t source = 0; source < shape_.world; source++) {
            const Tokens& from = all[source];
            std::vector<uint32_t> counts(shape_.world);
            for (uint32_t t = 0; t < from.count; t++) {
                for (uint32_t d : ranksOf(from, t)) {
                    counts[d]++;
                }
            }
            bool room = true;
            for (uint32_t d = 0; d < shape_.world; d++) {
                room = room && received[d] + counts[d] <= shape_.maxRecv;
            }
            overflow_[source] = !room;
            require((ranks_[source].progress.overflow[0] == int32_t(source)) == !room, "an overflow is told where it is");
            for (uint32_t t = 0; room && t < from.count; t++) {
                for (uint32_t d : ranksOf(from, t)) {
                    checkRow(from, source, t, d, received[d]++);
                }
            }
        }
        for (uint32_t r = 0; r < shape_.world; r++) {
            require(ranks_[r].progress.fault == Fault::none, "nothing went wrong");
            require(ranks_[r].received == int32_t(received[r]), "the count of received rows");
            require(ranks_[r].progress.arrivals[0] == 0 && ranks_[r].progress.arrivals[1] == 0, "arrivals are 0 again");
            countLocal(r, received[r]);
        }
    }

    void combine(const std::vector<Tokens>& all, uint32_t blocks, uint32_t threads, bool inPlace, bool weighted, std::mt19937& random) {
        const uint32_t hidden = shape_.rowBytes / 2;
        const uint32_t drawn = uint32_t(random());
        const Number type = drawn / 6 % 3 == 0 ? Number::float32 : Number::bfloat16;
        routed_ = drawn / 2 % 3 == 0;
        std::vector<std::vector<float>> outputs(shape_.world), outWeights(shape_.world);
        std::vector<std::vector<unsigned char>> bytes(shape_.world);
        for (uint32_t r = 0; r < shape_.world; r++) {
            const uint32_t rows = uint32_t(ranks_[r].received);
            outputs[r].resize(size_t(rows) * hidden + 1);
            for (float& value : outputs[r]) {
                value = rounded(float(int32_t(random())) / (1 << 27), type);
            }
            bytes[r] = encoded(outputs[r], type);
            outWeights[r].resize(size_t(rows) * shape_.topk + 1);
            for (float& value : outWeights[r]) {
                value = float(random() % 10000) / 7;
            }
            if (inPlace) {
                memcpy(base(r) + regions_.combineIn, bytes[r].data(), size_t(rows) * hidden * mori::device::numberBytes(type));
            }
        }
        std::vector<std::vector<int32_t>> routes(shape_.world);
        for (uint32_t r = 0; r < shape_.world; r++) {
            routes[r] = ranks_[r].slots;
        }
        each([&](uint32_t r) {
            CombineArgs args{};
            args.op = &ranks_[r].op;
            args.input = inPlace ? nullptr : bytes[r].data();
            args.weights = outWeights[r].data();
            args.given = shape_.maxRecv, args.tokens = all[r].count, args.hidden = hidden;
            args.type = uint32_t(type);
            args.weighted = weighted;
            args.signature = 9, args.clearReceived = 1;
            if (routed_) {
                args.route = routes[r].data(), args.rows = &ranks_[r].received;
            } else if (sends_ && !inPlace) {
                args.transport = uint32_t(Transport::push);
            }
            if (drawn % 2 == 0) {
                args.phases = kSend | kRecv;
                runCombine(r, args, blocks, threads);
                return;
            }
            args.phases = kSend;
            runCombine(r, args, blocks, threads);
            args.phases = kRecv;
            runCombine(r, args, blocks, threads);
        });
        for (uint32_t r = 0; r < shape_.world; r++) {
            require(ranks_[r].received == 0, "combine takes the count back");
            require(ranks_[r].progress.fault == Fault::none, "nothing went wrong in combine");
            for (uint32_t t = 0; t < all[r].count; t++) {
                checkSum(all[r], r, t, hidden, type, outputs, outWeights, weighted);
            }
        }
    }

    virtual void runDispatch(uint32_t, const DispatchArgs& args, uint32_t blocks, uint32_t threads) {
        launch(blocks, threads, [&] { mori_ep_dispatch(args); });
    }

    virtual void runCombine(uint32_t, const CombineArgs& args, uint32_t blocks, uint32_t threads) {
        launch(blocks, threads, [&] { mori_ep_combine(args); });
    }

    Rank& rank(uint32_t r) { return ranks_[r]; }
    bool refused() const { return std::find(overflow_.begin(), overflow_.end(), true) != overflow_.end(); }
    const Shape& shape() const { return shape_; }
    unsigned char* base(uint32_t r) { return reinterpret_cast<unsigned char*>(ranks_[r].op.bases[r]); }

    /// Where what is behind the regions begins, from base on.
    uint64_t behind() const { return behind_; }

protected:
    /// Whether the last dispatch was by a routing map, and the last combine.
    bool replayed() const { return replayed_; }
    bool routed() const { return routed_; }

    /// The rank that sums what a rank made of another's tokens: that one, or one that does it for its host.
    virtual uint32_t summer(uint32_t of, uint32_t) const { return of; }

private:
    /// The sum of a token's terms, of which each of the ranks has one.
    template <class Term>
    float sumOf(uint32_t r, const std::vector<uint32_t>& ranks, Number type, Term term) const {
        Sum total, part;
        for (size_t i = 0; i < ranks.size(); i++) {
            const uint32_t at = summer(r, ranks[i]);
            if (at == r) {
                total.add(term(ranks[i]));
                continue;
            }
            part.add(term(ranks[i]));
            if (i + 1 == ranks.size() || summer(r, ranks[i + 1]) != at) {
                total.add(rounded(part.value, type));
                part = {};
            }
        }
        return total.value;
    }

    std::vector<uint32_t> ranksOf(const Tokens& from, uint32_t token) const {
        std::vector<uint32_t> ranks;
        for (uint32_t d = 0; d < shape_.world; d++) {
            for (uint32_t k = 0; k < shape_.topk; k++) {
                const int32_t expert = from.indices[size_t(token) * shape_.topk + k];
                if (expert >= 0 && uint32_t(expert) / shape_.perRank == d) {
                    ranks.push_back(d);
                    break;
                }
            }
        }
        return ranks;
    }

    void checkRow(const Tokens& from, uint32_t source, uint32_t t, uint32_t d, uint32_t slot) {
        const unsigned char* const there = base(d);
        auto same = [&](uint64_t region, const void* mine, uint64_t bytes, const char* what) {
            require(memcmp(there + region + slot * bytes, static_cast<const unsigned char*>(mine) + t * bytes, bytes) == 0, what);
        };
        same(regions_.dispatchOut, from.rows.data(), shape_.rowBytes, "a row has its bytes");
        same(regions_.dispatchOutIndices, from.indices.data(), shape_.topk * 4, "a row has its indices");
        if (!from.weights.empty()) {
            same(regions_.dispatchOutWeights, from.weights.data(), shape_.topk * 4, "a row has its weights");
        }
        if (!from.scales.empty()) {
            same(regions_.dispatchOutScales, from.scales.data(), shape_.scaleBytes, "a row has its scales");
        }
        int32_t position = 0;
        memcpy(&position, there + regions_.srcPositions + slot * 4, 4);
        require(position == int32_t(source * shape_.world * shape_.maxTokens + t), "a row has its position");
        for (uint32_t k = 0; k < shape_.topk; k++) {
            const int32_t expert = from.indices[size_t(t) * shape_.topk + k];
            if (expert >= 0 && uint32_t(expert) / shape_.perRank == d) {
                require(ranks_[source].slots[size_t(t) * shape_.topk + k] == int32_t(d * shape_.maxRecv + slot), "the routing map");
            }
        }
    }

    void countLocal(uint32_t r, uint32_t rows) {
        std::vector<int32_t> counts(shape_.perRank), model(shape_.perRank);
        const auto* const indices = reinterpret_cast<const int32_t*>(base(r) + regions_.dispatchOutIndices);
        const CountLocalArgs args{&ranks_[r].received, indices, counts.data(), shape_.topk, r * shape_.perRank, shape_.perRank};
        launch(2, 4, [&] { mori_ep_count_local(args); });
        for (uint32_t i = 0; i < rows * shape_.topk; i++) {
            const int64_t local = int64_t(indices[i]) - int64_t(r) * shape_.perRank;
            if (local >= 0 && local < shape_.perRank) {
                model[size_t(local)]++;
            }
        }
        require(counts == model, "the choices of each expert are counted");
    }

    void checkSum(const Tokens& from, uint32_t r, uint32_t t, uint32_t hidden, Number type,
                  const std::vector<std::vector<float>>& outputs, const std::vector<std::vector<float>>& outWeights, bool weighted) {
        const int32_t* const slots = &ranks_[r].slots[size_t(t) * shape_.topk];
        const std::vector<uint32_t> ranks = overflow_[r] ? std::vector<uint32_t>() : ranksOf(from, t);
        for (uint32_t e = 0; e < hidden; e++) {
            const float total = sumOf(r, ranks, type, [&](uint32_t d) {
                const float value = outputs[d][size_t(rowAt(slots, d)) * hidden + e];
                float factor = 0;
                for (uint32_t k = 0; weighted && k < shape_.topk; k++) {
                    factor += uint32_t(slots[k]) / shape_.maxRecv == d ? from.weights[size_t(t) * shape_.topk + k] : 0;
                }
                return weighted ? value * factor : value;
            });
            const uint32_t each = mori::device::numberBytes(type);
            const std::vector<unsigned char> want = encoded({rounded(total, type)}, type);
            require(memcmp(base(r) + regions_.combineOut + (size_t(t) * hidden + e) * each, want.data(), each) == 0, "the sum of a token's rows");
        }
        for (uint32_t k = 0; k < shape_.topk; k++) {
            const float total = sumOf(r, ranks, Number::float32, [&](uint32_t d) { return outWeights[d][size_t(rowAt(slots, d)) * shape_.topk + k]; });
            float got = 0;
            memcpy(&got, base(r) + regions_.combineOutWeights + (size_t(t) * shape_.topk + k) * 4, 4);
            require(got == total, "the sum of a token's weights");
        }
    }

    uint32_t rowAt(const int32_t* slots, uint32_t d) const {
        for (uint32_t k = 0; k < shape_.topk; k++) {
            if (uint32_t(slots[k]) / shape_.maxRecv == d) {
                return uint32_t(slots[k]) % shape_.maxRecv;
            }
        }
        require(false, "the map has the rank");
        return 0;
    }

    Shape shape_;
    uint64_t behind_ = 0;
    Regions regions_{};
    std::vector<Rank> ranks_;
    std::vector<bool> overflow_;
    bool replayed_ = false, routed_ = false;

protected:
    bool sends_;  // combine's rows, if they do not lie in place
};

inline Tokens tokens(std::mt19937& random, const Shape& shape, uint32_t rank, uint32_t count, Routing routing) {
    Tokens made;
    made.count = count;
    auto fill = [&](std::vector<unsigned char>& bytes, size_t n) {
        bytes.resize(n + 16);  // aligned rows begin where the vector does
        for (unsigned char& byte : bytes) {
            byte = static_cast<unsigned char>(random());
        }
    };
    fill(made.rows, size_t(count) * shape.rowBytes);
    if (shape.scaleBytes != 0) {
        fill(made.scales, size_t(count) * shape.scaleBytes);
    }
    const int32_t experts = int32_t(shape.perRank * shape.world);
    for (uint32_t i = 0; i < count * shape.topk; i++) {
        int32_t expert = int32_t(random() % uint32_t(experts));
        switch (routing) {
        case Routing::uniform: break;
        case Routing::skewed: expert = random() % 4 != 0 ? expert / int32_t(shape.world) : expert; break;
        case Routing::one: expert = int32_t(shape.perRank) * int32_t(shape.world - 1); break;
        case Routing::nowhere: expert = -1; break;
        case Routing::sentinels: expert = random() % 3 == 0 ? (random() % 2 == 0 ? -1 : experts + 3) : expert; break;
        }
        made.indices.push_back(expert);
        made.weights.push_back(float(random() % 64) / 64);
    }
    made.indices.resize(made.indices.size() + 1, rank == 0 ? -1 : 0);
    return made;
}

/// Launches have up to so many blocks, and as many warps in each.
inline void rounds(std::mt19937& random, World& world, int count, uint32_t most = 3) {
    const Shape& shape = world.shape();
    std::vector<Tokens> all;
    for (int round = 0; round < count; round++) {
        // Who was refused has a map that goes nowhere.
        const bool replay = round % 3 == 2 && !world.refused();
        if (!replay) {
            all.clear();
            for (uint32_t r = 0; r < shape.world; r++) {
                const auto routing = Routing(random() % 5);
                const uint32_t n = random() % 7 == 0 ? 0 : random() % (shape.maxTokens + 1);
                all.push_back(tokens(random, shape, r, n, routing));
                if (random() % 4 == 0) {
                    all.back().scales.clear();
                }
            }
        }
        const uint32_t blocks = 1 + random() % most;
        const uint32_t threads = 4 * (1 + random() % most);
        world.dispatch(all, blocks, threads, random() % 2 == 0, replay);
        world.combine(all, blocks, threads, random() % 2 == 0, random() % 2 == 0, random);
    }
}
