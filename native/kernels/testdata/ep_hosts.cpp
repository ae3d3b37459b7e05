// SPDX-License-Identifier: MIT
// Runs dispatch and combine of ranks on several hosts on the CPU. Built with sanitizers by tests/python/kernels.
#include "ep_hosts.hpp"

namespace {

void run(std::mt19937& random, const Shape& shape, const Spread& spread, int count) {
    HostsWorld world(shape, spread);
    rounds(random, world, count, 2);
    for (uint32_t r = 0; r < shape.world; r++) {
        require((world.server(r).commands() == 0) == spread.nics, "what NICs reach is not the proxy's");
    }
}

/// One dispatch of every rank but those in without.
void dispatchWithout(HostsWorld& world, uint32_t without) {
    world.each([&](uint32_t r) {
        if (r == without) {
            return;
        }
        std::mt19937 random(r);
        const Tokens mine = tokens(random, world.shape(), r, 4, Routing::uniform);
        DispatchArgs args{};
        args.op = &world.rank(r).op, args.input = mine.rows.data(), args.indices = mine.indices.data();
        args.rowBytes = world.shape().rowBytes, args.tokens = 4, args.phases = kSend | kRecv, args.signature = 7;
        world.runDispatch(r, args, 2, 4);
    });
}

/// A rank of another host that does not come is named.
void lateRank() {
    HostsWorld world({4, 2, 2, 8, 32, 0, 32}, {2, true, 64}, 100'000'000);
    dispatchWithout(world, 3);
    for (uint32_t r = 0; r < 3; r++) {
        const Notice& notice = world.rank(r).notice;
        require(world.rank(r).progress.fault == Fault::timeout, "a rank that does not come breaks the op");
        require(notice.wait.ready == 1 && notice.wait.peer == 3 && notice.wait.rank == r && notice.wait.expected >> kSignatureBits == 1,
                "the report tells who waited for whom");
    }
}

/// A rank that the network does not reach any more is told at once, with what the proxy says.
void lostRank() {
    HostsWorld world({4, 2, 2, 8, 32, 0, 32}, {2, false, 64}, 10'000'000'000);  // which ranks 1 and 3 wait
    world.server(0).fail(2, 110);
    dispatchWithout(world, 2);
    const Notice& notice = world.rank(0).notice;
    require(world.rank(0).progress.fault == Fault::network && notice.wait.peer == 2 && notice.wait.seen == 110, "the network's answer is told");
}

/// The same of a NIC, whose completions somebody reads who waits.
void lostByNic() {
    HostsWorld world({2, 2, 2, 8, 32, 0, 32}, {1, false, 64, true, 1});
    dispatchWithout(world, 1);
    const Notice& notice = world.rank(0).notice;
    require(world.rank(0).progress.fault == Fault::network && notice.wait.peer == 1 && notice.wait.seen == (uint64_t(1) << 32 | 0x7713),
            "the NIC's answer is told, and whose it is");
}

/// Forwarding sends a token once to each host.
void copies() {
    const Shape shape{4, 4, 1, 16, 64, 0, 64};
    uint64_t commands[2] = {};
    for (const bool forwards : {false, true}) {
        HostsWorld world(shape, {2, forwards, 1 << 20});
        std::mt19937 random(3);
        std::vector<Tokens> all;
        for (uint32_t r = 0; r < shape.world; r++) {
            all.push_back(tokens(random, shape, r, 16, Routing::uniform));
        }
        world.dispatch(all, 2, 8, false, false);
        commands[forwards] = world.server(0).commands();
    }
    require(commands[true] == commands[false] - 1, "one forwarder on the other host, instead of two ranks");
}

}  // namespace

int main() {
    std::mt19937 random(13);
    const Spread all[] = {{2, false, 200}, {2, true, 200}, {1, false, 1 << 20}, {2, true, 1 << 20}};
    for (const Spread& spread : all) {
        run(random, {4, 4, 2, 11, 48, 8, 44}, spread, spread.forwards ? 2 : 1);
    }
    run(random, {4, 3, 5, 9, 30, 6, 36}, {2, true, 200}, 1);     // odd rows
    run(random, {4, 3, 2, 20, 32, 4, 30}, {2, false, 200}, 1);   // capped
    run(random, {6, 4, 2, 9, 64, 256, 54}, {3, true, 700}, 1);   // scales that are long
    run(random, {6, 4, 2, 9, 64, 0, 54}, {2, true, 300}, 1);     // three hosts
    run(random, {2, 2, 1, 66, 16, 0, 132}, {1, false, 1}, 1);    // as many chunks as there can be
    run(random, {2, 2, 2, 11, 48, 8, 44}, {1, false, 200, true}, 3);
    run(random, {4, 3, 5, 9, 30, 6, 36}, {2, true, 200, true}, 1);
    lateRank();
    lostRank();
    lostByNic();
    copies();
    puts("all ran");
    return 0;
}
