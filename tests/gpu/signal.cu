// SPDX-License-Identifier: MIT
// Two GPUs hand each other a word and a flag, by the library's primitives. nvcc compiles it: the headers serve users'
// own kernels, too.
#include "signal_kernels.hpp"

#include "mori/device/poll.hpp"

using namespace mori::device;

namespace {

constexpr int kFlag = 8;  // words from the payload to the flag: a line of its own

MORI_DEVICE_INLINE void put(const PingPong& game, uint64_t round) {
    *static_cast<volatile uint64_t*>(game.peers) = round * 3;
    atomicStore<Scope::system, Order::release>(game.peers + kFlag, round);
}

MORI_DEVICE_INLINE bool await(const PingPong& game, uint64_t round) {
    uint64_t seen = 0;
    const bool came = pollUntil(game.limit, [&] {
        seen = atomicLoad<Scope::system, Order::acquire>(game.mine + kFlag);
        return seen == round;
    });
    if (!came) {
        game.out->gaveUp++;
        reportWait(reinterpret_cast<WaitReport*>(game.out->report), game.mine + kFlag, round, seen, game.rank,
                   1 - game.rank);
        return false;
    }
    if (*static_cast<volatile uint64_t*>(game.mine) != round * 3) {
        game.out->wrong++;
    }
    return true;
}

}  // namespace

static_assert(sizeof(WaitReport) == sizeof(Outcome::report));

/// One thread a GPU.
extern "C" MORI_DEVICE_KERNEL(32) void ping_pong(const PingPong game) {
    const uint64_t start = nanoseconds();
    for (uint64_t round = 1; round <= game.rounds; round++) {
        if (game.first != 0) {
            put(game, round);
        }
        if (!await(game, round)) {
            break;
        }
        if (game.first == 0) {
            put(game, round);
        }
    }
    game.out->nanoseconds = nanoseconds() - start;
}

/// Both arrive at once and wait for each other: what a barrier of two costs.
extern "C" MORI_DEVICE_KERNEL(32) void meet(const PingPong game) {
    const uint64_t start = nanoseconds();
    for (uint64_t round = 1; round <= game.rounds; round++) {
        atomicStore<Scope::system, Order::release>(game.peers + kFlag, round);
        const bool came = pollUntil(game.limit, [&] {
            return atomicLoad<Scope::system, Order::acquire>(game.mine + kFlag) >= round;
        });
        if (!came) {
            game.out->gaveUp++;
            break;
        }
    }
    game.out->nanoseconds = nanoseconds() - start;
}
