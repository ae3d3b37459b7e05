// SPDX-License-Identifier: MIT
// Runs dispatch and combine of a few ranks on the CPU over random shapes and routings, and holds every row against a model. Built with sanitizers by
// tests/python/kernels.
#include "ep.hpp"

namespace {

/// A rank that does not come: the others end, and tell whom they waited for.
void lateRank() {
    const Shape shape{3, 2, 2, 8, 32, 0, 24};
    World world(shape, 50'000'000);
    world.each([&](uint32_t r) {
        if (r == 1) {
            return;
        }
        std::mt19937 random(r);
        const Tokens mine = tokens(random, shape, r, 0, Routing::uniform);
        DispatchArgs args{};
        args.op = &world.rank(r).op, args.input = mine.rows.data(), args.indices = mine.indices.data();
        args.rowBytes = shape.rowBytes, args.phases = kSend | kRecv, args.signature = 7;
        launch(2, 4, [&] { mori_ep_dispatch(args); });
        const uint64_t before = world.rank(r).progress.dispatches;
        launch(2, 4, [&] { mori_ep_dispatch(args); });  // ends at once
        require(world.rank(r).progress.dispatches == before, "a broken op does nothing");
    });
    for (uint32_t r : {0u, 2u}) {
        require(world.rank(r).progress.fault == Fault::timeout, "a rank that does not come breaks the op");
        require(world.rank(r).notice.wait.ready == 1 && world.rank(r).notice.wait.peer == 1 && world.rank(r).notice.wait.rank == r,
                "the report tells who waited for whom");
    }
}

/// A rank that does not come to a combine whose rows are sent, or that dies when it has told of its first chunks: the others end, and tell whom they waited for.
void lateInCombine(bool begins) {
    const Shape shape{3, 2, 2, 16, 32, 0, 48};
    World world(shape, 500'000'000);
    std::vector<Tokens> all;
    std::mt19937 random(3);
    for (uint32_t r = 0; r < 3; r++) {
        all.push_back(tokens(random, shape, r, 16, Routing::uniform));
    }
    world.dispatch(all, 2, 8, false, false);
    require(uint64_t(world.rank(0).progress.most) * 32 >= 200, "rows are so many that they are sent");
    const std::vector<unsigned char> rows(48 * 32 + 16);
    if (begins) {
        for (uint32_t r : {0u, 2u}) {
            const uint64_t value = uint64_t(1) << kSignatureBits | 9;
            memcpy(world.base(r) + world.rank(r).op.regions.ready + kLineBytes, &value, sizeof(value));
        }
    }
    world.each([&](uint32_t r) {
        if (r == 1) {
            return;
        }
        CombineArgs args{};
        args.op = &world.rank(r).op, args.input = rows.data(), args.given = shape.maxRecv, args.tokens = 16, args.hidden = 16;
        args.type = uint32_t(Number::bfloat16), args.transport = uint32_t(Transport::push), args.phases = kSend | kRecv, args.signature = 9;
        launch(2, 8, [&] { mori_ep_combine(args); });
    });
    for (uint32_t r : {0u, 2u}) {
        require(world.rank(r).progress.fault == Fault::timeout && world.rank(r).progress.combines == 0, "a rank that does not come breaks the op");
        require(world.rank(r).notice.wait.ready == 1 && world.rank(r).notice.wait.peer == 1, "the report tells who waited for whom");
        const uint64_t line = world.rank(r).op.bases[r] + world.rank(r).op.regions.ready + kLineBytes;
        require((world.rank(r).notice.wait.address != line) == begins, "and for what");
    }
}

/// A rank that is marked as dead is not waited for, and gets nothing.
void deadRank(std::mt19937& random) {
    const Shape shape{3, 2, 2, 8, 32, 0, 24};
    World world(shape);
    for (uint32_t r = 0; r < 3; r++) {
        world.rank(r).op.dead = 1 << 1;
    }
    std::vector<Tokens> all;
    for (uint32_t r = 0; r < 3; r++) {
        all.push_back(tokens(random, shape, r, r == 1 ? 0 : 8, Routing::uniform));
    }
    world.each([&](uint32_t r) {
        if (r == 1) {
            return;
        }
        DispatchArgs args{};
        args.op = &world.rank(r).op, args.input = all[r].rows.data(), args.indices = all[r].indices.data();
        args.rowBytes = shape.rowBytes, args.tokens = all[r].count, args.phases = kSend | kRecv, args.signature = 7;
        launch(2, 4, [&] { mori_ep_dispatch(args); });
        CombineArgs back{};
        back.op = &world.rank(r).op, back.given = shape.maxRecv, back.tokens = all[r].count, back.hidden = 16;
        back.type = uint32_t(Number::bfloat16), back.phases = kSend | kRecv, back.signature = 9;
        launch(2, 4, [&] { mori_ep_combine(back); });
        const std::vector<unsigned char> rows(24 * 32 + 16);
        back.input = rows.data(), back.transport = uint32_t(Transport::push);
        launch(2, 8, [&] { mori_ep_combine(back); });
    });
    for (uint32_t r : {0u, 2u}) {
        require(uint64_t(world.rank(r).progress.most) * 32 >= 200, "rows are so many that they are sent");
        require(world.rank(r).progress.fault == Fault::none && world.rank(r).progress.combines == 2, "the others go on");
    }
}

/// Ranks that disagree are told.
void mismatch() {
    const Shape shape{2, 2, 2, 4, 32, 0, 8};
    World world(shape);
    world.each([&](uint32_t r) {
        std::mt19937 random(r);
        const Tokens mine = tokens(random, shape, r, 4, Routing::uniform);
        DispatchArgs args{};
        args.op = &world.rank(r).op, args.input = mine.rows.data(), args.indices = mine.indices.data();
        args.rowBytes = shape.rowBytes, args.tokens = 4, args.phases = kSend | kRecv, args.signature = 7 + r;
        launch(1, 4, [&] { mori_ep_dispatch(args); });
        require(world.rank(r).progress.fault == Fault::mismatch, "signatures that differ are found");
    });
}

/// Rounds behind so many dispatches.
void run(std::mt19937& random, const Shape& shape, int count, uint64_t behind = 0) {
    World world(shape);
    for (uint32_t r = 0; r < shape.world; r++) {
        world.rank(r).progress.dispatches = behind;
    }
    rounds(random, world, count);
}

}  // namespace

int main() {
    std::mt19937 random(11);
    run(random, {1, 1, 3, 5, 16, 0, 5}, 4);
    run(random, {2, 2, 1, 9, 48, 8, 18}, 7);
    run(random, {3, 4, 5, 17, 30, 6, 51}, 6);   // odd rows
    run(random, {5, 6, 2, 12, 64, 256, 60}, 5);  // more ranks than lanes; scales that do not fit beside
    run(random, {4, 3, 2, 20, 32, 4, 30}, 6);    // capped
    for (const uint64_t behind : {uint64_t(1 << 18) - 3, uint64_t(3) << 32, (uint64_t(64) << 32) + (1 << 18) - 3}) {
        run(random, {3, 2, 2, 9, 48, 8, 27}, 5, behind);  // words have few bits of a number
    }
    lateRank();
    lateInCombine(false);
#if !defined(__SANITIZE_THREAD__)  // once the op is broken rows are not waited for any more, and some are just being written: the sums are void
    lateInCombine(true);
#endif
    deadRank(random);
    mismatch();
    puts("all ran");
    return 0;
}
