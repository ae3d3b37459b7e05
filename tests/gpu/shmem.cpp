// SPDX-License-Identifier: MIT
// Symmetric memory on the device: two GPUs are two PEs.
//
//     shmem PTX BARRIER_PTX check     PTX of shmem.cu, and of the barrier that is put on a stream
//     shmem PTX BARRIER_PTX small     the same in few rounds, for compute-sanitizer
//     shmem PTX BARRIER_PTX bench     the time of a put with its signal, and of barriers
#include <cstring>

#include "driver.hpp"
#include "mori/shmem/state.hpp"
#include "shmem_kernels.hpp"

using namespace mori::shmem;

namespace {

struct Pe {
    const Gpu& gpu;
    int rank;
    CUdeviceptr heap;
    CUdeviceptr peers;
    Result* result;
    mori::device::WaitReport* report;
};

Pe makePe(const Gpu& gpu, int rank) {
    gpu.use();
    return {gpu, rank, allocate(kHeap), allocate(2 * sizeof(Peer)), mappedHost<Result>(1),
            mappedHost<mori::device::WaitReport>(1)};
}

void introduce(const Pe& pe, const Pe& other) {
    pe.gpu.use();
    Peer peers[2]{};
    peers[pe.rank] = {pe.heap, Transport::p2p, 0};
    peers[other.rank] = {other.heap, Transport::p2p, 0};
    CHECK(cuMemcpyHtoD(pe.peers, peers, sizeof(peers)));
    memset(pe.report, 0, sizeof(*pe.report));
}

void fillIn(const Pe& pe, CUmodule module) {
    const State state{kStateVersion, pe.rank, 2, 0, pe.heap, kHeap, kSync, 5'000'000'000,
                      reinterpret_cast<const Peer*>(pe.peers), pe.report};
    CUdeviceptr symbol = 0;
    size_t bytes = 0;
    CHECK(cuModuleGetGlobal(&symbol, &bytes, module, "mori_shmem_state"));
    require(bytes == sizeof(State), "host and device agree on the state");
    CHECK(cuMemcpyHtoD(symbol, &state, sizeof(state)));
}

void clear(const Pe& pe) {
    pe.gpu.use();
    CHECK(cuMemsetD8(pe.heap, 0, kHeap));
    CHECK(cuCtxSynchronize());
    memset(pe.result, 0, sizeof(*pe.result));
}

double play(const Pe& one, const Pe& two, CUmodule modules[2], const char* kernel, uint32_t threads, uint64_t rounds) {
    clear(one);
    clear(two);
    for (const Pe* pe : {&one, &two}) {
        pe->gpu.use();
        CUfunction function = nullptr;
        CHECK(cuModuleGetFunction(&function, modules[pe->rank], kernel));
        CUdeviceptr heap = pe->heap;
        Result* result = pe->result;
        void* parameters[] = {&heap, &rounds, &result};
        CHECK(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, pe->gpu.stream, parameters, nullptr));
    }
    for (const Pe* pe : {&one, &two}) {
        pe->gpu.use();
        const CUresult ended = cuStreamSynchronize(pe->gpu.stream);
        if (ended != CUDA_SUCCESS) {
            fprintf(stderr, "PE %d waited for %llu, saw %llu\n", pe->rank, (unsigned long long)pe->report->expected,
                    (unsigned long long)pe->report->seen);
        }
        CHECK(ended);
        require(pe->result->wrong == 0, std::string(kernel) + ": all bytes right");
    }
    return double(one.result->nanoseconds) / double(rounds);
}

void barrierOnStream(const Pe& one, const Pe& two, CUmodule modules[2], int rounds) {
    clear(one);
    clear(two);
    Timer timer(one.gpu);
    for (int round = -rounds / 10; round < rounds; round++) {
        for (const Pe* pe : {&one, &two}) {
            pe->gpu.use();
            if (round == 0 && pe == &one) {
                timer.begin(one.gpu.stream);
            }
            CUfunction function = nullptr;
            CHECK(cuModuleGetFunction(&function, modules[pe->rank], "mori_shmem_barrier"));
            CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, pe->gpu.stream, nullptr, nullptr));
        }
    }
    one.gpu.use();
    timer.end(one.gpu.stream);
    printf("barrier on stream,%.2f us\n", timer.milliseconds() * 1000 / rounds);
    two.gpu.use();
    CHECK(cuStreamSynchronize(two.gpu.stream));
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc == 4 ? argv[3] : "";
    require(what == "check" || what == "small" || what == "bench", "usage: shmem PTX BARRIER_PTX check|small|bench");
    CHECK(cuInit(0));
    const Gpu first(0), second(secondGpu());
    first.reach(second);
    second.reach(first);
    const Pe one = makePe(first, 0), two = makePe(second, 1);
    introduce(one, two);
    introduce(two, one);
    CUmodule user[2] = {first.load(argv[1]), second.load(argv[1])};
    CUmodule barrier[2] = {first.load(argv[2]), second.load(argv[2])};
    for (const Pe* pe : {&one, &two}) {
        pe->gpu.use();
        fillIn(*pe, user[pe->rank]);
        fillIn(*pe, barrier[pe->rank]);
    }
    const uint64_t messages = what == "small" ? 12 : 300;
    play(one, two, user, "ring", 256, messages);
    printf("ring: %llu messages of 0 to 60000 bytes right\n", (unsigned long long)messages);
    const uint64_t rounds = what == "small" ? 20 : what == "check" ? 2000 : 20000;
    printf("put of 8 bytes with signal,%.0f ns one way\n", play(one, two, user, "put_signal", 1, rounds) / 2);
    printf("barrier in a kernel,%.0f ns\n", play(one, two, user, "barriers", 1, rounds));
    barrierOnStream(one, two, barrier, int(rounds / 20));
    return 0;
}
