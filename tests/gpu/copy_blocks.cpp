// SPDX-License-Identifier: MIT
// The block copy on two GPUs of one host, from the PTX that is committed.
//
//     copy_blocks PTX check     every byte of targets of any size and alignment, all ways to launch
//     copy_blocks PTX small     the same on small cases, for compute-sanitizer
//     copy_blocks PTX bench     GB/s beside a memcpy of the same bytes, and the time of one small copy
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>

#include "driver.hpp"
#include "mori/device/copy_stream.hpp"
#include "mori/io/copy_blocks.hpp"

using mori::io::CopyBlocksArgs;
using mori::io::Segment;

namespace {

constexpr uint32_t kMostShared = 232448;  // sm_90's for one block

struct Launch {
    uint32_t blocks, threads, stageBytes;  // 0: through registers
    uint32_t shared() const { return stageBytes == 0 ? 0 : threads / 32 * mori::device::streamSharedBytes(stageBytes); }
};

class Copier {
public:
    Copier(const Gpu& gpu, const std::string& ptx) : gpu_(gpu) {
        CHECK(cuModuleGetFunction(&kernel_, gpu.load(ptx), "mori_io_copy_blocks"));
        CHECK(cuFuncSetAttribute(kernel_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(kMostShared)));
        arrivals_ = allocate(4);
        CHECK(cuMemsetD8(arrivals_, 0, 4));
        completion_ = mappedHost<uint64_t>(1);
        *completion_ = 0;
    }

    /// A list of one segment, which ``one`` points at, goes along with the launch.
    void launch(const Segment* segments, uint64_t count, uint64_t total, const Launch& how, const Segment* one = nullptr) {
        CopyBlocksArgs args{segments, count, total, reinterpret_cast<uint32_t*>(arrivals_), completion_, ++launched_, {}, 0, 0, 0};
        if (one != nullptr) {
            args.one = *one;
            args.list = nullptr;
        }
        launch(args, how);
    }

    /// Blocks of one size: rows of offsets of where they go and of where they come from.
    void launchBlocks(const uint64_t* rows, uint64_t count, const Segment& block, const Launch& how) {
        launch({rows, count, count * block.bytes, reinterpret_cast<uint32_t*>(arrivals_), completion_, ++launched_, {}, block.bytes,
                block.destination, block.source}, how);
    }

    void launch(CopyBlocksArgs args, const Launch& how) {
        void* parameters[] = {&args};
        CHECK(cuLaunchKernel(kernel_, how.blocks, 1, 1, how.threads, 1, 1, how.shared(), gpu_.stream, parameters, nullptr));
    }

    /// Waits as a host does that knows nothing of events: by the word.
    void wait() {
        const auto start = std::chrono::steady_clock::now();
        while (__atomic_load_n(completion_, __ATOMIC_ACQUIRE) != launched_) {
            if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) {
                CHECK(cuStreamSynchronize(gpu_.stream));
                require(false, "the completion word comes within 20 s");
            }
        }
    }

    const Gpu& gpu() const { return gpu_; }

private:
    const Gpu& gpu_;
    CUfunction kernel_ = nullptr;
    CUdeviceptr arrivals_ = 0;
    uint64_t* completion_ = nullptr;
    uint64_t launched_ = 0;
};

void sumUp(std::vector<Segment>& list) {
    uint64_t before = 0;
    for (Segment& segment : list) {
        segment.before = before;
        before += segment.bytes;
    }
}

uint64_t totalOf(const std::vector<Segment>& list) {
    return list.empty() ? 0 : list.back().before + list.back().bytes;
}

// ---- correctness ----

class Checker {
public:
    Checker(Copier& copier, const Gpu& from, const Gpu& to, uint64_t bytes) : copier_(copier), bytes_(bytes) {
        from.use();
        source_ = allocate(bytes);
        to.use();
        target_ = allocate(bytes);
        content_.resize(bytes);
        for (uint64_t i = 0; i < bytes; i++) {
            content_[i] = uint8_t(random_());
        }
        CHECK(cuMemcpyHtoD(source_, content_.data(), bytes));
        copier.gpu().use();
        device_ = allocate(kMostSegments * sizeof(Segment));
        host_ = mappedHost<Segment>(kMostSegments);
    }

    /// Blocks of one size, by their offsets.
    void runBlocks(size_t count, uint64_t bytes, uint32_t alignment, const Launch& how, bool listOnHost) {
        const uint64_t step = (bytes + alignment - 1) / alignment * alignment + alignment;
        count = std::min<size_t>(count, bytes_ / step);
        std::vector<uint8_t> model(bytes_, 0xa5);
        std::vector<uint64_t> to(count), from(count), rows;
        for (size_t i = 0; i < count; i++) {
            to[i] = from[i] = i * step;
        }
        std::shuffle(to.begin(), to.end(), random_);
        std::shuffle(from.begin(), from.end(), random_);
        for (size_t i = 0; i < count; i++) {
            memcpy(model.data() + to[i], content_.data() + from[i], bytes);
        }
        rows.insert(rows.end(), to.begin(), to.end());
        rows.insert(rows.end(), from.begin(), from.end());
        CHECK(cuMemsetD8(target_, 0xa5, bytes_));
        memcpy(host_, rows.data(), rows.size() * sizeof(uint64_t));
        CHECK(cuMemcpyHtoD(device_, rows.data(), rows.size() * sizeof(uint64_t)));
        CHECK(cuCtxSynchronize());
        copier_.launchBlocks(reinterpret_cast<const uint64_t*>(listOnHost ? CUdeviceptr(host_) : device_), count, {target_, source_, bytes, 0}, how);
        copier_.wait();
        std::vector<uint8_t> seen(bytes_);
        CHECK(cuMemcpyDtoH(seen.data(), target_, bytes_));
        require(seen == model, std::to_string(count) + " blocks of " + std::to_string(bytes) + " bytes, alignment " +
                                   std::to_string(alignment) + ", " + std::to_string(how.blocks) + " blocks of " +
                                   std::to_string(how.threads) + ", stage " + std::to_string(how.stageBytes));
        runs++;
    }

    void run(size_t count, uint64_t most, uint32_t alignment, const Launch& how, bool listOnHost) {
        std::vector<Segment> list;
        std::vector<uint8_t> model(bytes_, 0xa5);
        uint64_t from = 0, to = 0;
        for (size_t i = 0; i < count; i++) {
            from += random_() % 4 * alignment;
            to += random_() % 4 * alignment;
            const uint64_t bytes = most == 0 ? 0 : (random_() % 8 == 0 ? random_() % (most + 1) : random_() % (most / alignment + 1) * alignment);
            if (std::max(from, to) + bytes > bytes_) {
                break;
            }
            list.push_back({target_ + to, source_ + from, bytes, 0});
            memcpy(model.data() + to, content_.data() + from, bytes);
            from += bytes;
            to += bytes;
        }
        std::shuffle(list.begin(), list.end(), random_);
        sumUp(list);
        CHECK(cuMemsetD8(target_, 0xa5, bytes_));
        memcpy(host_, list.data(), list.size() * sizeof(Segment));
        CHECK(cuMemcpyHtoD(device_, list.data(), list.size() * sizeof(Segment)));
        CHECK(cuCtxSynchronize());  // a copy from pageable memory returns before it is there, and the kernel's stream does not wait for it
        copier_.launch(listOnHost ? host_ : reinterpret_cast<Segment*>(device_), list.size(), totalOf(list), how,
                       list.size() == 1 ? list.data() : nullptr);
        copier_.wait();
        // The word is all that the host waits for: the copy below sees what the kernel wrote before it.
        std::vector<uint8_t> seen(bytes_);
        CHECK(cuMemcpyDtoH(seen.data(), target_, bytes_));
        if (seen != model) {
            const auto at = std::mismatch(seen.begin(), seen.end(), model.begin()).first - seen.begin();
            require(false, "byte " + std::to_string(at) + " of " + std::to_string(list.size()) + " segments up to " +
                               std::to_string(most) + ", alignment " + std::to_string(alignment) + ", " +
                               std::to_string(how.blocks) + " blocks of " + std::to_string(how.threads) + ", stage " +
                               std::to_string(how.stageBytes));
        }
        runs++;
    }

    int runs = 0;

private:
    static constexpr size_t kMostSegments = 20000;
    Copier& copier_;
    uint64_t bytes_;
    CUdeviceptr source_ = 0, target_ = 0, device_ = 0;
    Segment* host_ = nullptr;
    std::vector<uint8_t> content_;
    std::mt19937 random_{6};
};

int checkAll(Checker& checker, bool small) {
    const std::vector<Launch> launches =
        small ? std::vector<Launch>{{1, 32, 0}, {3, 64, 0}, {2, 96, 512}}
              : std::vector<Launch>{{1, 32, 0}, {8, 512, 0}, {132, 512, 0}, {7, 96, 0}, {1, 32, 512}, {8, 128, 4096}, {64, 256, 2048}, {5, 96, 1152}, {8, 32, 28672}};
    for (const Launch& how : launches) {
        for (uint32_t alignment : {1, 2, 4, 8, 16, 128}) {
            for (const bool listOnHost : {false, true}) {
                checker.run(small ? 30 : 3000, 900, alignment, how, listOnHost);
                checker.run(small ? 5 : 200, small ? 9000 : 40000, alignment, how, listOnHost);
                checker.run(1, small ? 30000 : 7000000, alignment, how, listOnHost);
                checker.runBlocks(small ? 30 : 3000, small ? 300 : 4096, alignment, how, listOnHost);
                checker.runBlocks(small ? 7 : 333, 1001, alignment, how, listOnHost);
            }
        }
        checker.run(0, 0, 1, how, false);
        checker.run(100, 0, 1, how, false);
        checker.run(small ? 50 : 15000, 3, 1, how, true);
    }
    return checker.runs;
}

// ---- speed ----

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

enum class List { device, host, upload };
constexpr const char* kListNames[] = {"device", "mapped host", "uploaded"};

/// Random blocks of one pool to random blocks of another; the pools are many times the L2.
class Bench {
public:
    Bench(Copier& copier, const Gpu& from, const Gpu& to) : copier_(copier), timer_(copier.gpu()) {
        from.use();
        source_ = allocate(kPool);
        CHECK(cuMemsetD8(source_, 1, kPool));
        to.use();
        target_ = allocate(kPool);
        CHECK(cuMemsetD8(target_, 2, kPool));
        copier.gpu().use();
        device_ = allocate(kRounds * kMostSegments * sizeof(Segment));
        host_ = mappedHost<Segment>(kRounds * kMostSegments);
    }

    void prepare(uint64_t block, uint64_t count) {
        block_ = block;
        count_ = count;
        std::vector<uint64_t> slots(kPool / block);
        std::iota(slots.begin(), slots.end(), 0);
        std::vector<uint64_t> others = slots;
        size_t next = slots.size();
        for (uint64_t round = 0; round < kRounds; round++) {
            std::vector<Segment> list;
            for (uint64_t i = 0; i < count; i++, next++) {
                if (next >= slots.size()) {
                    std::shuffle(slots.begin(), slots.end(), random_);
                    std::shuffle(others.begin(), others.end(), random_);
                    next = 0;
                }
                list.push_back({target_ + others[next] * block, source_ + slots[next] * block, block, 0});
            }
            sumUp(list);
            memcpy(host_ + round * kMostSegments, list.data(), count * sizeof(Segment));
        }
        copier_.gpu().use();
        CHECK(cuMemcpyHtoD(device_, host_, kRounds * kMostSegments * sizeof(Segment)));
    }

    double gigabytes(const Launch& how, List where) {
        return measure([&](uint64_t round) {
            Segment* list = reinterpret_cast<Segment*>(device_) + round * kMostSegments;
            if (where == List::host) {
                list = host_ + round * kMostSegments;
            } else if (where == List::upload) {
                CHECK(cuMemcpyHtoDAsync(CUdeviceptr(list), host_ + round * kMostSegments, count_ * sizeof(Segment),
                                        copier_.gpu().stream));
            }
            copier_.launch(list, count_, count_ * block_, how);
        });
    }

    /// The yardstick: the same bytes in one piece by the copy engine.
    double memcpyGigabytes() {
        const uint64_t bytes = block_ * count_;
        return measure([&](uint64_t round) {
            const uint64_t at = round * bytes % (kPool - bytes + 1) / 4096 * 4096;
            CHECK(cuMemcpyDtoDAsync(target_ + at, source_ + at, bytes, copier_.gpu().stream));
        });
    }

    /// Microseconds from the call to the word that the host sees, and the smallest.
    std::pair<double, double> oneCopy(const Launch& how) {
        std::vector<double> times;
        for (int i = 0; i < 2000; i++) {
            const auto start = std::chrono::steady_clock::now();
            const Segment* const list = host_ + i % kRounds * kMostSegments;
            copier_.launch(list, count_, count_ * block_, how, count_ == 1 ? list : nullptr);
            copier_.wait();
            const auto end = std::chrono::steady_clock::now();
            times.push_back(std::chrono::duration<double, std::micro>(end - start).count());
        }
        return {median(times), *std::min_element(times.begin(), times.end())};
    }

private:
    template <class Submit>
    double measure(Submit submit) {
        copier_.gpu().use();
        std::vector<double> rates;
        for (int repeat = 0; repeat < 6; repeat++) {
            timer_.begin(copier_.gpu().stream);
            for (uint64_t round = 0; round < kRounds; round++) {
                submit(round);
            }
            timer_.end(copier_.gpu().stream);
            const double ms = timer_.milliseconds();
            if (repeat > 0) {  // the first is the warm-up
                rates.push_back(double(kRounds * count_ * block_) / ms / 1e6);
            }
        }
        return median(rates);
    }

    static constexpr uint64_t kPool = uint64_t(2) << 30;
    static constexpr uint64_t kRounds = 10;
    static constexpr uint64_t kMostSegments = 32768;
    Copier& copier_;
    Timer timer_;
    CUdeviceptr source_ = 0, target_ = 0, device_ = 0;
    Segment* host_ = nullptr;
    uint64_t block_ = 0, count_ = 0;
    std::mt19937 random_{7};
};

void report(Bench& bench, const char* way, uint64_t block, uint64_t count, const Launch& how, List where, double yard) {
    const double rate = bench.gigabytes(how, where);
    printf("%s,%llu,%llu,%u,%u,%u,%s,%.1f,%.3f\n", way, (unsigned long long)block, (unsigned long long)count, how.blocks,
           how.threads, how.stageBytes, kListNames[int(where)], rate, rate / yard);
    fflush(stdout);
}

const std::vector<std::pair<uint64_t, uint64_t>> kSizes = {{512, 32768},  {1024, 32768}, {4096, 8192},   {16384, 8192},
                                                           {65536, 4096}, {262144, 1024}, {1048576, 256}};

void benchWay(Bench& bench, const char* way, bool full) {
    const std::vector<std::pair<uint32_t, uint32_t>> shapes = {
        {128, 0}, {256, 0}, {512, 0}, {64, 8192}, {128, 2048}, {128, 4096}, {128, 7040}, {256, 1024}, {256, 2048}, {256, 3456}, {512, 1024}, {512, 1664}};
    for (const auto& [block, count] : kSizes) {
        bench.prepare(block, count);
        const double yard = bench.memcpyGigabytes();
        printf("%s,%llu,%llu,,,,memcpy of the same bytes,%.1f,1\n", way, (unsigned long long)block, (unsigned long long)count,
               yard);
        for (uint32_t blocks : {4, 8, 16, 32, 64, 132}) {
            for (const auto& [threads, stage] : shapes) {
                const Launch how{blocks, threads, stage};
                if (how.shared() > kMostShared || (!full && block != 4096 && block != 65536)) {
                    continue;
                }
                report(bench, way, block, count, how, List::device, yard);
                if (block == 4096 && full) {
                    report(bench, way, block, count, how, List::host, yard);
                    report(bench, way, block, count, how, List::upload, yard);
                }
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 3, "usage: copy_blocks PTX check|small|bench");
    const std::string mode = argv[2];
    CHECK(cuInit(0));
    const Gpu first(0), second(secondGpu());
    first.reach(second);
    second.reach(first);
    Copier push(first, argv[1]), pull(second, argv[1]);
    if (mode != "bench") {
        const uint64_t bytes = mode == "small" ? 1 << 16 : 8 << 20;
        Checker pushed(push, first, second, bytes), pulled(pull, first, second, bytes), local(push, first, first, bytes);
        int runs = 0;
        for (auto* checker : {&pushed, &pulled, &local}) {
            (checker == &pulled ? second : first).use();
            runs += checkAll(*checker, mode == "small");
        }
        printf("all bytes right in %d launches\n", runs);
        return 0;
    }
    printf("way,block bytes,blocks copied,grid,threads,stage,list,GB/s,of memcpy\n");
    Bench pushed(push, first, second);
    benchWay(pushed, "push", true);
    pushed.prepare(4096, 1);
    first.use();
    for (const Launch& how : {Launch{1, 32, 0}, Launch{1, 128, 0}, Launch{1, 128, 4096}, Launch{8, 512, 0}, Launch{8, 128, 4096}}) {
        const auto [middle, least] = pushed.oneCopy(how);
        printf("one,4096,1,%u,%u,%u,launch to word microseconds,%.2f,%.2f\n", how.blocks, how.threads, how.stageBytes, middle,
               least);
    }
    Bench pulled(pull, first, second);
    benchWay(pulled, "pull", false);
    return 0;
}
