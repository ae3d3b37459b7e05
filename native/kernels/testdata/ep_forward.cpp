// SPDX-License-Identifier: MIT
// Combine where hosts sum, on the CPU: whole numbers, whose sums are the same in any order, through many calls that nobody joins in between; what crosses
// the network; and ranks that do not come. Built with sanitizers by tests/python/kernels.
#include "ep_hosts.hpp"

namespace {

/// Tokens whose elements are 1 to 3, and that go to all ranks, or, with `some`, to any.
Tokens wholeTokens(std::mt19937& random, const Shape& shape, uint32_t rank, uint32_t count, bool some) {
    const auto routing = some ? Routing(random() % 5) : Routing::uniform;
    Tokens made = tokens(random, shape, rank, count, routing);
    std::vector<float> elements(size_t(count) * shape.rowBytes / 2);
    for (float& element : elements) {
        element = float(1 + random() % 3);
    }
    made.rows = encoded(elements, Number::bfloat16);
    for (uint32_t i = 0; i < count * shape.topk; i++) {
        made.indices[i] = some ? made.indices[i] : int32_t(i % shape.topk % shape.world * shape.perRank);
        made.weights[i] = float(random() % 3);
    }
    return made;
}

void dispatchOne(HostsWorld& world, uint32_t r, const Tokens& mine, uint32_t threads) {
    DispatchArgs args{};
    args.op = &world.rank(r).op, args.input = mine.rows.data(), args.indices = mine.indices.data(), args.weights = mine.weights.data();
    args.rowBytes = world.shape().rowBytes, args.tokens = mine.count, args.phases = kSend | kRecv, args.signature = 7;
    world.runDispatch(r, args, 1 + r % 2, threads);
}

/// What an expert of a rank makes of its rows: rank + 1 times them.
std::vector<unsigned char> made(HostsWorld& world, uint32_t r, Number type) {
    const uint32_t elements = uint32_t(world.rank(r).received) * world.shape().rowBytes / 2;
    std::vector<float> values(elements);
    for (uint32_t e = 0; e < elements; e++) {
        uint16_t bits = 0;
        memcpy(&bits, world.base(r) + world.rank(r).op.regions.dispatchOut + e * 2, 2);
        values[e] = mori::device::toFloat<Number::bfloat16>(bits) * float(r + 1);
    }
    return encoded(values, type);
}

void combineOne(HostsWorld& world, uint32_t r, const Tokens& mine, Number type, bool weighted, const int32_t* route, uint32_t threads) {
    const std::vector<unsigned char> rows = made(world, r, type);
    CombineArgs args{};
    args.op = &world.rank(r).op, args.input = rows.data();
    args.weights = reinterpret_cast<const float*>(world.base(r) + world.rank(r).op.regions.dispatchOutWeights);
    args.route = route, args.rows = route != nullptr ? &world.rank(r).received : nullptr;
    args.given = world.shape().maxRecv, args.tokens = mine.count, args.hidden = world.shape().rowBytes / 2;
    args.type = uint32_t(type), args.weighted = weighted, args.phases = kSend | kRecv, args.signature = 9;
    world.runCombine(r, args, 1 + r % 2, threads);
}

/// Each token is the sum of what the experts of its ranks made of it, and each weight came back from each of them.
void checkOne(HostsWorld& world, uint32_t r, const Tokens& mine, Number type, bool weighted) {
    const Shape& shape = world.shape();
    const uint32_t hidden = shape.rowBytes / 2;
    for (uint32_t t = 0; t < mine.count; t++) {
        float times = 0, ranks = 0;
        for (uint32_t d = 0; d < shape.world; d++) {
            float factor = 0;
            bool goes = false;
            for (uint32_t k = 0; k < shape.topk; k++) {
                const int32_t expert = mine.indices[size_t(t) * shape.topk + k];
                const bool here = expert >= 0 && uint32_t(expert) / shape.perRank == d;
                goes = goes || here;
                factor += here ? mine.weights[size_t(t) * shape.topk + k] : 0;
            }
            times += goes ? float(d + 1) * (weighted ? factor : 1) : 0;
            ranks += goes;
        }
        std::vector<float> want(hidden);
        for (uint32_t e = 0; e < hidden; e++) {
            uint16_t bits = 0;
            memcpy(&bits, mine.rows.data() + (size_t(t) * hidden + e) * 2, 2);
            want[e] = mori::device::toFloat<Number::bfloat16>(bits) * times;
        }
        const Regions& at = world.rank(r).op.regions;
        const uint64_t bytes = uint64_t(hidden) * mori::device::numberBytes(type);
        require(memcmp(world.base(r) + at.combineOut + t * bytes, encoded(want, type).data(), bytes) == 0, "a sum of whole numbers, to the last bit");
        for (uint32_t k = 0; k < shape.topk; k++) {
            float got = 0;
            memcpy(&got, world.base(r) + at.combineOutWeights + (size_t(t) * shape.topk + k) * 4, 4);
            require(got == ranks * mine.weights[size_t(t) * shape.topk + k], "a sum of weights");
        }
    }
}

/// Ranks go from call to call by themselves, one far ahead of another as the flags let them. All draw alike what they do alike.
void manyRounds(const Shape& shape, const Spread& spread, int count) {
    HostsWorld world(shape, spread);
    world.each([&](uint32_t r) {
        std::mt19937 alike(17), own(r);
        for (int round = 0; round < count; round++) {
            const Number type = alike() % 2 == 0 ? Number::bfloat16 : Number::float32;
            const bool weighted = alike() % 3 == 0, routed = alike() % 5 == 0;
            const Tokens mine = wholeTokens(own, shape, r, own() % (shape.maxTokens + 1), own() % 4 != 0);
            dispatchOne(world, r, mine, 4);
            const std::vector<int32_t> route = world.rank(r).slots;
            const int combines = alike() % 4 == 0 ? 2 : 1;  // without a dispatch in between
            for (int i = 0; i < combines; i++) {
                combineOne(world, r, mine, type, weighted, routed ? route.data() : nullptr, 4 * (1 + own() % 2));
                require(world.rank(r).progress.fault == Fault::none, "nothing went wrong");
                checkOne(world, r, mine, type, weighted);
            }
        }
    });
}

/// What all servers move in a combine of tokens that go to all ranks.
uint64_t moved(const Shape& shape, const Spread& spread, uint32_t count) {
    HostsWorld world(shape, spread);
    std::vector<Tokens> all(shape.world);
    world.each([&](uint32_t r) {
        std::mt19937 random(r);
        all[r] = wholeTokens(random, shape, r, count, false);
        dispatchOne(world, r, all[r], 8);
    });
    const uint64_t before = world.bytes();
    world.each([&](uint32_t r) {
        combineOne(world, r, all[r], Number::bfloat16, false, nullptr, 8);
        checkOne(world, r, all[r], Number::bfloat16, false);
    });
    return world.bytes() - before;
}

void oneRowForEachHost() {
    const Shape shape{6, 6, 1, 16, 64, 0, 96};
    const uint64_t rows = 6 * 16;  // of one rank's each
    require(moved(shape, {2, false, 200}, 16) == rows * 4 * (64 + 24), "a row from each rank that is far, with its weights");
    require(moved(shape, {2, true, 200}, 16) == rows * 2 * (64 + 32), "a row from each host, with weights in whole chunks");
    require(moved(shape, {3, true, 1 << 20}, 16) == rows * 1 * (64 + 32), "a row from the other host");
}

/// A dispatch of all ranks, of tokens that go to all.
std::vector<Tokens> dispatchAll(HostsWorld& world) {
    std::vector<Tokens> all(world.shape().world);
    world.each([&](uint32_t r) {
        std::mt19937 random(r);
        all[r] = wholeTokens(random, world.shape(), r, 4, false);
        dispatchOne(world, r, all[r], 4);
        require(world.rank(r).progress.fault == Fault::none, "the dispatch went well");
    });
    return all;
}

void combineWithout(HostsWorld& world, const std::vector<Tokens>& all, uint32_t without) {
    world.each([&](uint32_t r) {
        if (r != without) {
            combineOne(world, r, all[r], Number::bfloat16, false, nullptr, 4);
        }
    });
}

/// Of a rank that does not come its host hears by itself, and others by their forwarders there, which have nothing to send.
void lateRank() {
    HostsWorld world({4, 4, 1, 8, 32, 0, 32}, {2, true, 64}, 1'000'000'000);
    combineWithout(world, dispatchAll(world), 3);
    const uint32_t named[] = {2, 3, 3};
    for (uint32_t r = 0; r < 3; r++) {
        const Notice& notice = world.rank(r).notice;
        require(world.rank(r).progress.fault == Fault::timeout, "a rank that does not come breaks the op");
        require(notice.wait.ready == 1 && notice.wait.peer == named[r] && notice.wait.rank == r, "the report tells who waited for whom");
    }
}

/// The network has lost a rank that a forwarder waits for: who waits for the forwarder is told.
void lostRank() {
    HostsWorld world({4, 4, 1, 8, 32, 0, 32}, {2, true, 64}, 1'000'000'000);
    const std::vector<Tokens> all = dispatchAll(world);
    world.server(0).fail(3, 110);
    combineWithout(world, all, 3);
    const Notice& notice = world.rank(0).notice;
    require(world.rank(0).progress.fault == Fault::network && notice.wait.peer == 3 && notice.wait.seen == 110, "the network's answer is told");
}

}  // namespace

/// With a number it does so many times as many rounds.
int main(int argc, char** argv) {
    const int times = argc > 1 ? atoi(argv[1]) : 1;
    manyRounds({4, 3, 2, 3, 16, 0, 12}, {2, true, 1}, 150 * times);
    manyRounds({4, 2, 1, 5, 6, 0, 20}, {2, true, 1 << 20}, 50 * times);  // odd rows
    manyRounds({6, 4, 1, 5, 32, 0, 30}, {3, true, 100}, 20 * times);
    manyRounds({6, 4, 1, 5, 32, 0, 30}, {2, true, 100}, 20 * times);  // three hosts
    manyRounds({4, 2, 2, 66, 16, 0, 264}, {2, true, 1}, 2 * times);   // as many chunks as there can be
    manyRounds({4, 3, 2, 3, 16, 0, 12}, {2, true, 1, true}, 10 * times);
    oneRowForEachHost();
    lateRank();
    lostRank();
    puts("all ran");
    return 0;
}
