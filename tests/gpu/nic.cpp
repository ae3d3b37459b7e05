// SPDX-License-Identifier: MIT
// The kernels that use a NIC, on GPUs, against the reference NIC: threads of the host that read the queues' rings in mapped host
// memory as a NIC may, early or late by a seed. Every byte is checked, and every rule of the queue.
//
//     nic PTX [SEEDS]      PTX of native/kernels/nic/mlx5.cpp; built with -DMORI_NIC_FAMILY=bnxt, that of bnxt.cpp, and so on
#include <memory>
#include <tuple>

#include "../../native/kernels/testdata/nic.hpp"
#include "driver.hpp"
#include "mori/nic/kernels.hpp"

using namespace mori::nic;

namespace {

constexpr uint64_t kLimit = 20'000'000'000;
constexpr uint64_t kBytes = 1 << 16;

/// A reference NIC whose queue's view is in the GPU's own memory.
class Nic {
public:
    Nic(const Gpu& gpu, uint64_t seed, Manners manners, uint32_t sqLog)
        : gpu_(gpu), memory_(mappedHost<uint8_t>(ReferenceNic::bytesOf(sqLog))) {
        memset(memory_, 0, ReferenceNic::bytesOf(sqLog));
        nic_ = std::make_unique<ReferenceNic>(seed, manners, sqLog, 0, memory_);
        gpu.use();
        view = allocate(sizeof(Queue) + sizeof(Annex));
        CHECK(cuMemcpyHtoD(view, nic_->queue(), sizeof(Queue) + sizeof(Annex)));
    }
    ~Nic() {
        nic_.reset();
        gpu_.use();
        CHECK(cuMemFree(view));
        CHECK(cuMemFreeHost(memory_));
    }
    Nic(const Nic&) = delete;
    Nic& operator=(const Nic&) = delete;

    void add(Region region) { nic_->add(region); }
    Queue* device() const { return reinterpret_cast<Queue*>(view); }
    /// The view as the device has left it.
    Queue state() const {
        Queue queue;
        gpu_.use();
        CHECK(cuMemcpyDtoH(&queue, view, sizeof(queue)));
        return queue;
    }

private:
    const Gpu& gpu_;
    uint8_t* memory_;
    CUdeviceptr view = 0;
    std::unique_ptr<ReferenceNic> nic_;
};

/// Mapped host memory with a key.
struct Arena {
    explicit Arena(uint32_t key) : key(key), memory(mappedHost<uint8_t>(kBytes)) { memset(memory, 0, kBytes); }
    ~Arena() { CHECK(cuMemFreeHost(memory)); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    Region region() const { return {key, memory, kBytes}; }
    Memory view() const { return {uint64_t(memory), kBytes, key, key}; }

    uint32_t key;
    uint8_t* memory;
};

template <class Args>
void start(const Gpu& gpu, CUmodule module, const char* kernel, Args args, uint32_t blocks, uint32_t threads) {
    gpu.use();
    memset(args.outcome, 0, sizeof(Outcome));
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, module, kernel));
    size_t bytes = sizeof(args);
    void* packed[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, gpu.stream, nullptr, packed));
}

void finish(const Gpu& gpu, const Outcome* outcome, const std::string& what, uint64_t done) {
    gpu.use();
    CHECK(cuStreamSynchronize(gpu.stream));
    if (outcome->status != kOk) {
        fprintf(stderr, "status %#llx, waited for %llu, saw %llu at %#llx\n", (unsigned long long)outcome->status,
                (unsigned long long)outcome->report.expected, (unsigned long long)outcome->report.seen,
                (unsigned long long)outcome->report.address);
    }
    require(outcome->status == kOk && outcome->done == done, what + ": all is done");
    require(outcome->wrong == 0, what + ": all bytes are right");
}

void interchange(const Gpu& gpu, CUmodule module, uint64_t seed, uint64_t rounds) {
    Arena mine(1), peer(2);
    Nic nic(gpu, seed, Manners(seed), 6);
    nic.add(mine.region());
    nic.add(peer.region());
    Outcome* const outcome = mappedHost<Outcome>(1);
    constexpr uint32_t kBlocks = 8;
    start(gpu, module, "mori_nic_interchange",
          InterchangeArgs{nic.device(), outcome, kLimit, mine.view(), peer.view(), 4096, rounds, 42, 0}, kBlocks, 128);
    finish(gpu, outcome, "interchange", rounds * kBlocks);
    start(gpu, module, "mori_nic_verify", VerifyArgs{peer.memory, outcome, 4096, 42}, 4, 128);
    finish(gpu, outcome, "verify", 0);
    CHECK(cuMemFreeHost(outcome));
}

/// All posters write their own piece, and count.
void lists(const Gpu& gpu, CUmodule module, uint64_t seed, Posters posters) {
    constexpr uint64_t kPieces = 512;
    Arena mine(1), peer(2);
    Nic nic(gpu, seed, Manners(seed), 8);
    nic.add(mine.region());
    nic.add(peer.region());
    Work* const work = mappedHost<Work>(2 * kPieces);
    memset(work, 0, 2 * kPieces * sizeof(Work));
    for (uint64_t i = 0; i < kPieces; i++) {
        memset(mine.memory + i * 64, int(i % 251 + 1), 48);
        Work& write = work[2 * i];
        std::tie(write.kind, write.remote, write.rkey) = std::tuple(Kind::write, uint64_t(peer.memory) + i * 64, 2u);
        std::tie(write.local, write.lkey, write.bytes) = std::tuple(uint64_t(mine.memory) + i * 64, 1u, uint64_t(48));
        Work& add = work[2 * i + 1];  // of 5 segments, or of 4
        add = write;
        add.kind = i % 2 == 0 ? Kind::fetchAdd : kFamily == Provider::mlx5 ? Kind::maskedCompareSwap : Kind::compareSwap;
        add.remote = uint64_t(peer.memory) + (i % 2 == 0 ? kBytes - 8 : i * 64 + 56);
        std::tie(add.local, add.bytes, add.value, add.valueMask) =
            std::tuple(uint64_t(mine.memory) + i * 64 + 56, uint64_t(8), i, ~uint64_t(0));
    }
    Outcome* const outcome = mappedHost<Outcome>(1);
    start(gpu, module, "mori_nic_post",
          PostArgs{nic.device(), outcome, kLimit, work, 2 * kPieces, posters, uint32_t(seed % 5)}, 8, 64);
    finish(gpu, outcome, "post", 2 * kPieces);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < kPieces; i++) {
        require(memcmp(peer.memory + i * 64, mine.memory + i * 64, 48) == 0, "post: every byte is written");
        uint64_t word = 0;
        memcpy(&word, peer.memory + i * 64 + 56, 8);
        require(i % 2 == 0 || i * 64 + 56 == kBytes - 8 || word == i, "post: every word is swapped");
        sum += i % 2 == 0 ? i : 0;
    }
    uint64_t counted = 0;
    memcpy(&counted, peer.memory + kBytes - 8, 8);
    require(counted == sum, "post: every count is there");
    const Queue left = nic.state();
    require(left.completed == left.reserved && left.published == left.reserved && left.bells == 0, "post: nothing is left over");
    CHECK(cuMemFreeHost(outcome));
    CHECK(cuMemFreeHost(work));
}

void pingPong(const Gpu& first, const Gpu& second, CUmodule modules[2], uint64_t seed, uint64_t rounds) {
    Arena sent[2] = {Arena(1), Arena(2)}, inbox[2] = {Arena(3), Arena(4)};
    Manners manners(seed);
    const Gpu* const gpus[2] = {&first, &second};
    Nic one(first, seed, manners, 6), two(second, seed + 1, manners, 6);
    Nic* const nics[2] = {&one, &two};
    Outcome* const outcomes = mappedHost<Outcome>(2);
    for (int side = 0; side < 2; side++) {
        nics[side]->add(sent[side].region());
        nics[side]->add(inbox[1 - side].region());
    }
    for (int side = 0; side < 2; side++) {
        start(*gpus[side], modules[side], "mori_nic_ping_pong",
              PingPongArgs{nics[side]->device(), &outcomes[side], kLimit, sent[side].view(), inbox[side].view(),
                           inbox[1 - side].view(), 4096, 1000, rounds, side == 0, 1},
              1, 128);
    }
    for (int side = 0; side < 2; side++) {
        finish(*gpus[side], &outcomes[side], "ping pong", rounds);
    }
    printf("ping pong,seed %llu,%.1f us a round through the reference NIC\n", (unsigned long long)seed,
           double(outcomes[0].nanoseconds) / 1e3 / double(rounds));
    CHECK(cuMemFreeHost(outcomes));
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 2 || argc == 3, "usage: nic PTX [SEEDS]");
    const uint64_t seeds = argc == 3 ? strtoull(argv[2], nullptr, 10) : 20;
    CHECK(cuInit(0));
    const Gpu first(0), second(secondGpu());
    CUmodule modules[2] = {first.load(argv[1]), second.load(argv[1])};
    first.use();
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        interchange(first, modules[0], seed, 100);
        for (const Posters posters : {Posters::thread, Posters::warp, Posters::block, Posters::lanes}) {
            lists(second, modules[1], seed, posters);
        }
        pingPong(first, second, modules, seed, 200);
    }
    printf("%llu seeds are right\n", (unsigned long long)seeds);
    return 0;
}
