// SPDX-License-Identifier: MIT
// Litmus tests of the order that kernels rely on, over the memory of two GPUs and of the host: what is forbidden must never be
// seen, and with the order taken away the tests tell how often it is.
//
//     litmus PTX [TESTS]      PTX of litmus.cu
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "driver.hpp"
#include "litmus_kernels.hpp"

namespace {

constexpr uint64_t kLimit = 10'000'000'000;

enum class Where { first, second, host };
const char* const kPlaces[] = {"GPU 0", "GPU 1", "host"};
const char* const kHow[] = {"fences", "release and acquire", "one word", "no order"};

/// Lines of zeros somewhere.
class Lines {
public:
    Lines(const Gpu& gpu, Where where, uint64_t count) : gpu_(gpu), where_(where) {
        gpu.use();
        if (where == Where::host) {
            memory = mappedHost<uint8_t>(count * kLine);
            memset(memory, 0, count * kLine);
        } else {
            const CUdeviceptr address = allocate(count * kLine);
            CHECK(cuMemsetD8(address, 0, count * kLine));
            CHECK(cuCtxSynchronize());
            memory = reinterpret_cast<uint8_t*>(address);
        }
    }
    ~Lines() {
        gpu_.use();
        if (where_ == Where::host) {
            CHECK(cuMemFreeHost(memory));
        } else {
            CHECK(cuMemFree(reinterpret_cast<CUdeviceptr>(memory)));
        }
    }
    Lines(const Lines&) = delete;
    Lines& operator=(const Lines&) = delete;

    uint8_t* memory = nullptr;

private:
    const Gpu& gpu_;
    Where where_;
};

struct Pair {
    const Gpu* gpus[2];
    CUmodule modules[2];
};

void start(const Pair& pair, int side, const char* kernel, Litmus& litmus, uint32_t blocks, uint32_t threads) {
    pair.gpus[side]->use();
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, pair.modules[side], kernel));
    size_t bytes = sizeof(litmus);
    void* packed[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &litmus, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, pair.gpus[side]->stream, nullptr, packed));
}

void finish(const Pair& pair) {
    for (const Gpu* gpu : pair.gpus) {
        gpu->use();
        CHECK(cuStreamSynchronize(gpu->stream));
    }
}

/// A shape between the GPUs. Returns how often the outcome that order forbids was seen.
uint64_t between(const Pair& pair, const char* kernel, How how, Where data, Where flags, uint64_t tests) {
    const Gpu* const owner[] = {pair.gpus[0], pair.gpus[1], pair.gpus[0]};
    const Lines dataLines(*owner[int(data)], data, tests), flagLines(*owner[int(flags)], flags, tests);
    const Lines meeting(*pair.gpus[0], Where::host, 2);
    Seen* const seen = mappedHost<Seen>(2 * tests);
    uint64_t* const gaveUp = mappedHost<uint64_t>(1);
    memset(seen, 0, 2 * tests * sizeof(Seen));
    *gaveUp = 0;
    Litmus litmus{dataLines.memory, flagLines.memory, nullptr, meeting.memory, seen, tests, kLimit, how, 0, gaveUp};
    start(pair, 0, kernel, litmus, 1, 1);
    litmus.side = 1;
    litmus.seen = seen + tests;
    start(pair, 1, kernel, litmus, 1, 1);
    finish(pair);
    require(*gaveUp == 0, std::string(kernel) + ": the sides meet");
    const bool buffering = strcmp(kernel, "store_buffering") == 0;
    uint64_t forbidden = 0, came = 0;
    for (uint64_t i = 0; i < tests; i++) {
        const Seen &one = seen[i], &two = seen[tests + i];
        forbidden += buffering ? one.flag == 0 && two.flag == 0 : two.stale != 0;
        came += buffering ? one.flag + two.flag > 0 : two.flag != 0;
    }
    printf("%s,%s,data on %s,flags on %s,%llu tests,%llu told something,%llu forbidden\n", kernel, kHow[int(how)],
           kPlaces[int(data)], kPlaces[int(flags)], (unsigned long long)tests, (unsigned long long)came,
           (unsigned long long)forbidden);
    require(came > 0, std::string(kernel) + ": some tests tell something");
    CHECK(cuMemFreeHost(seen));
    CHECK(cuMemFreeHost(gaveUp));
    return forbidden;
}

/// A GPU's two blocks, and the host as the third.
uint64_t toTheHost(const Pair& pair, How how, uint64_t tests) {
    const Gpu& gpu = *pair.gpus[0];
    const Lines data(gpu, Where::host, tests), flags(gpu, Where::host, tests), published(gpu, Where::first, tests);
    uint64_t* const gaveUp = mappedHost<uint64_t>(1);
    *gaveUp = 0;
    std::atomic<bool> stop{false}, done{false};
    uint64_t stale = 0, came = 0;
    std::thread host([&] {
        // It polls the flags in another order than they arrive in, so that it sees them while they arrive.
        for (uint64_t i = 0; i < tests && !stop; i++) {
            const uint64_t test = (i / 64 * 64) + (63 - i % 64);
            if (test >= tests) {
                continue;
            }
            const uint32_t* const flag = reinterpret_cast<const uint32_t*>(flags.memory + test * kLine);
            while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0 && !stop) {
            }
            if (stop) {
                break;
            }
            came++;
            const uint32_t* const words = reinterpret_cast<const uint32_t*>(data.memory + test * kLine);
            for (uint32_t w = 0; w < kData; w++) {
                if (__atomic_load_n(words + (kData - 1 - w), __ATOMIC_RELAXED) != test + 1) {
                    stale++;
                    break;
                }
            }
        }
        done = true;
    });
    Litmus litmus{data.memory, flags.memory, published.memory, nullptr, nullptr, tests, kLimit, how, 0, gaveUp};
    start(pair, 0, "chain", litmus, 2, 256);
    finish(pair);
    for (int ms = 0; ms < 2000 && !done; ms++) {  // all flags are there: the host needs moments
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    stop = true;
    host.join();
    require(*gaveUp == 0, "chain: block 1 sees what block 0 has published");
    printf("chain,%s,data and flags on host,%llu tests,%llu told something,%llu forbidden\n", kHow[int(how)],
           (unsigned long long)tests, (unsigned long long)came, (unsigned long long)stale);
    require(came > tests - 64, "chain: the host sees the flags");  // it leaves out the end of a last part of 64
    CHECK(cuMemFreeHost(gaveUp));
    return stale;
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 2 || argc == 3, "usage: litmus PTX [TESTS]");
    const uint64_t tests = argc == 3 ? strtoull(argv[2], nullptr, 10) : 20000;
    CHECK(cuInit(0));
    const Gpu first(0), second(secondGpu());
    first.reach(second);
    second.reach(first);
    const Pair pair{{&first, &second}, {first.load(argv[1]), second.load(argv[1])}};
    uint64_t forbidden = 0;
    for (const Where data : {Where::first, Where::second, Where::host}) {
        for (const Where flags : {Where::first, Where::second, Where::host}) {
            forbidden += between(pair, "message_passing", How::fence, data, flags, tests);
            forbidden += between(pair, "message_passing", How::release, data, flags, tests);
            between(pair, "message_passing", How::nothing, data, flags, tests);
        }
        if (data != Where::host) {  // two GPUs' atomic operations on host memory need not be atomic to each other
            forbidden += between(pair, "store_buffering", How::modify, data, data, tests);
        }
        between(pair, "store_buffering", How::fence, data, data, tests);  // which such fences allow
    }
    for (const How how : {How::fence, How::release}) {
        forbidden += toTheHost(pair, how, tests);
    }
    toTheHost(pair, How::nothing, tests);
    require(forbidden == 0, "what is forbidden is never seen");
    puts("no forbidden outcome");
    return 0;
}
