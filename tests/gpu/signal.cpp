// SPDX-License-Identifier: MIT
// Times a put of 8 bytes with a flag between two GPUs of one host, and shows that a wait for a peer that never comes
// ends and reports what it waited for.
//
//     signal PTX
#include <cstring>

#include "driver.hpp"
#include "mori/device/report.hpp"
#include "signal_kernels.hpp"

namespace {

constexpr uint64_t kRounds = 20000;

struct Player {
    const Gpu& gpu;
    CUmodule module;
    CUdeviceptr words;
    Outcome* out;
};

void start(const Player& player, const Player& peer, const char* kernel, uint32_t rank, uint64_t rounds, uint64_t limit) {
    player.gpu.use();
    memset(player.out, 0, sizeof(Outcome));
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, player.module, kernel));
    PingPong game{reinterpret_cast<uint64_t*>(player.words), reinterpret_cast<uint64_t*>(peer.words), rounds, limit,
                  rank == 0, rank, player.out};
    void* parameters[] = {&game};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, player.gpu.stream, parameters, nullptr));
}

void clear(const Player& player) {
    player.gpu.use();
    CHECK(cuMemsetD8(player.words, 0, 4096));
    CHECK(cuCtxSynchronize());
}

void play(const Player& one, const Player& two, const char* kernel) {
    const uint64_t limit = 5'000'000'000;
    double best = 1e9;
    for (int repeat = 0; repeat < 5; repeat++) {
        clear(one);
        clear(two);
        start(one, two, kernel, 0, kRounds, limit);
        start(two, one, kernel, 1, kRounds, limit);
        CHECK(cuStreamSynchronize(two.gpu.stream));
        one.gpu.use();
        CHECK(cuStreamSynchronize(one.gpu.stream));
        require(one.out->gaveUp + two.out->gaveUp == 0, "nobody gives up");
        require(one.out->wrong + two.out->wrong == 0, "who sees the flag sees the payload");
        const double each = double(one.out->nanoseconds) / kRounds;
        best = each < best ? each : best;
    }
    printf("%s,%.0f ns a round\n", kernel, best);
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 2, "usage: signal PTX");
    CHECK(cuInit(0));
    const Gpu first(0), second(secondGpu());
    first.reach(second);
    second.reach(first);
    first.use();
    const Player one{first, first.load(argv[1]), allocate(4096), mappedHost<Outcome>(1)};
    second.use();
    const Player two{second, second.load(argv[1]), allocate(4096), mappedHost<Outcome>(1)};
    play(one, two, "ping_pong");
    play(one, two, "meet");

    clear(one);
    start(one, two, "ping_pong", 0, 1, 50'000'000);  // nobody answers
    CHECK(cuStreamSynchronize(one.gpu.stream));
    mori::device::WaitReport report{};
    memcpy(&report, one.out->report, sizeof(report));
    require(one.out->gaveUp == 1 && report.ready == 1 && report.count == 1, "a wait without a peer ends");
    require(report.expected == 1 && report.seen == 0 && report.rank == 0 && report.peer == 1, "the report tells why");
    printf("a wait for a peer that never comes ended after %.1f ms\n", double(one.out->nanoseconds) / 1e6);
    return 0;
}
