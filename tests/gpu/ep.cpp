// SPDX-License-Identifier: MIT
// Dispatch and combine on the GPUs of one host, a rank each, driven by the driver's API alone.
//
//     ep DISPATCH_PTX COMBINE_PTX check     random shapes and routings, every row held against a model
//     ep DISPATCH_PTX COMBINE_PTX small     few of them, for compute-sanitizer
//     ep DISPATCH_PTX COMBINE_PTX bench     microseconds by token count, type, blocks and threads, beside a memcpy
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "driver.hpp"
#include "mori/device/spread_stream.hpp"
#include "mori/ep/op.hpp"

using namespace mori::ep;

namespace {

struct Shape {
    uint32_t topk, perRank, maxTokens, hidden, elementBytes, scaleBytes;
    uint32_t rowBytes() const { return hidden * elementBytes; }
};

struct Grid {
    uint32_t blocks, threads, stage;
};

/// What a rank brings.
struct Input {
    CUdeviceptr rows = 0, indices = 0, weights = 0, scales = 0, outputs = 0;
    std::vector<int32_t> chosen;
};

struct Rank {
    const Gpu* gpu = nullptr;
    CUdeviceptr memory = 0, op = 0, progress = 0, received = 0, slots = 0, weights = 0;
    Op host{};
    CUfunction dispatch = nullptr, combine = nullptr;
    std::vector<Input> inputs;
};

template <class T>
CUdeviceptr upload(const std::vector<T>& values) {
    const CUdeviceptr there = allocate(std::max<size_t>(values.size() * sizeof(T), 16));
    CHECK(cuMemcpyHtoD(there, values.data(), values.size() * sizeof(T)));
    return there;
}

class World {
public:
    World(std::vector<Gpu>& gpus, const char* const* ptx, const Shape& shape) : shape_(shape), ranks_(gpus.size()) {
        const uint32_t world = uint32_t(gpus.size());
        const uint64_t rows = uint64_t(world) * shape.maxTokens;
        Regions at{};
        uint64_t size = 0;
        auto take = [&](uint64_t bytes) {
            const uint64_t begin = size;
            size += (bytes + 255) / 256 * 256;
            return begin;
        };
        at.counts = take(2 * world * world * 8);
        at.published = take(world * kLineBytes), at.arrived = take(world * kLineBytes);
        at.ready = take(world * kLineBytes), at.pulled = take(world * kLineBytes);
        const uint64_t control = size;
        at.dispatchOut = take(rows * shape.rowBytes());
        at.dispatchOutWeights = take(rows * shape.topk * 4), at.dispatchOutIndices = take(rows * shape.topk * 4);
        at.dispatchOutScales = take(rows * shape.scaleBytes), at.srcPositions = take(rows * 4);
        at.combineIn = take(rows * shape.hidden * 2), at.combineInScales = take(rows * 4 * 64);
        at.combineInWeights = take(rows * shape.topk * 4);
        at.combineOut = take(uint64_t(shape.maxTokens) * shape.hidden * 2);
        at.combineOutWeights = take(uint64_t(shape.maxTokens) * shape.topk * 4);
        for (uint32_t r = 0; r < world; r++) {
            Rank& rank = ranks_[r];
            rank.gpu = &gpus[r];
            rank.gpu->use();
            rank.memory = allocate(size);
            CHECK(cuMemsetD8(rank.memory, 0, control));
            rank.op = allocate(sizeof(Op)), rank.progress = allocate(sizeof(Progress)), rank.received = allocate(16);
            CHECK(cuMemsetD8(rank.progress, 0, sizeof(Progress)));
            rank.slots = allocate(uint64_t(shape.maxTokens) * shape.topk * 4);
            rank.weights = allocate(uint64_t(shape.maxTokens) * shape.topk * 4);
            CHECK(cuModuleGetFunction(&rank.dispatch, rank.gpu->load(ptx[0]), "mori_ep_dispatch"));
            CHECK(cuModuleGetFunction(&rank.combine, rank.gpu->load(ptx[1]), "mori_ep_combine"));
        }
        for (uint32_t r = 0; r < world; r++) {
            Rank& rank = ranks_[r];
            Op& op = rank.host;
            for (uint32_t d = 0; d < world; d++) {
                op.bases[d] = ranks_[d].memory;
            }
            op.regions = at, op.world = world, op.rank = r, op.topk = shape.topk, op.expertsPerRank = shape.perRank;
            op.experts = shape.perRank * world, op.maxRecv = uint32_t(rows), op.maxTokens = shape.maxTokens;
            op.positionStride = uint32_t(rows), op.waitLimit = 5'000'000'000;
            op.progress = reinterpret_cast<Progress*>(rank.progress);
            op.notice = mappedHost<Notice>(1);
            memset(op.notice, 0, sizeof(*op.notice));
            op.received = reinterpret_cast<int32_t*>(rank.received), op.slots = reinterpret_cast<int32_t*>(rank.slots);
            op.weights = reinterpret_cast<float*>(rank.weights);
            rank.gpu->use();
            CHECK(cuMemcpyHtoD(rank.op, &op, sizeof(op)));
        }
    }

    /// sets inputs of tokens each, so that rounds rotate among them.
    void bring(std::mt19937_64& random, uint32_t tokens, uint32_t sets, bool sentinels) {
        tokens_ = tokens;
        for (Rank& rank : ranks_) {
            rank.gpu->use();
            rank.inputs.clear();
            for (uint32_t s = 0; s < sets; s++) {
                Input input;
                std::vector<uint64_t> rows(uint64_t(tokens) * shape_.rowBytes() / 8 + 2);
                uint64_t value = random();
                for (uint64_t& word : rows) {
                    word = value = value * 6364136223846793005u + 1442695040888963407u;
                }
                std::vector<float> weights(uint64_t(tokens) * shape_.topk + 1);
                for (float& weight : weights) {
                    weight = float(random() % 64) / 64;
                }
                std::vector<unsigned char> scales(uint64_t(tokens) * shape_.scaleBytes + 1);
                for (unsigned char& byte : scales) {
                    byte = static_cast<unsigned char>(random());
                }
                for (uint32_t t = 0; t < tokens; t++) {
                    std::vector<int32_t> all(shape_.perRank * ranks_.size());
                    for (size_t e = 0; e < all.size(); e++) {
                        all[e] = int32_t(e);
                    }
                    for (uint32_t k = 0; k < shape_.topk; k++) {
                        std::swap(all[k], all[k + random() % (all.size() - k)]);
                        input.chosen.push_back(sentinels && random() % 5 == 0 ? -1 : all[k]);
                    }
                }
                input.chosen.push_back(-1);
                input.rows = upload(rows), input.indices = upload(input.chosen), input.weights = upload(weights);
                input.scales = upload(scales);
                rank.inputs.push_back(input);
            }
        }
    }

    void dispatch(uint32_t set, const Grid& grid) {
        for (Rank& rank : ranks_) {
            const Input& input = rank.inputs[set % rank.inputs.size()];
            DispatchArgs args{};
            args.op = reinterpret_cast<const Op*>(rank.op);
            args.input = reinterpret_cast<const void*>(input.rows);
            args.indices = reinterpret_cast<const int32_t*>(input.indices);
            args.weights = reinterpret_cast<const float*>(input.weights);
            args.scales = shape_.scaleBytes != 0 ? reinterpret_cast<const void*>(input.scales) : nullptr;
            args.rowBytes = shape_.rowBytes(), args.scaleBytes = shape_.scaleBytes, args.tokens = tokens_;
            args.phases = kSend | kRecv, args.signature = 1;
            launch(rank, rank.dispatch, &args, grid, mori::device::spreadSharedBytes(grid.stage));
        }
    }

    /// How the rows get to the ranks of their tokens.
    enum class Way { inPlace, copied, sent };

    void combine(uint32_t set, const Grid& grid, Way way) {
        for (Rank& rank : ranks_) {
            CombineArgs args{};
            args.op = reinterpret_cast<const Op*>(rank.op);
            const Input& input = rank.inputs[set % rank.inputs.size()];
            args.input = way == Way::inPlace ? nullptr : reinterpret_cast<const void*>(input.outputs);
            args.transport = uint32_t(way == Way::sent ? Transport::push : Transport::plain);
            args.given = rank.host.maxRecv, args.tokens = tokens_, args.hidden = shape_.hidden, args.type = 1;
            args.phases = kSend | kRecv, args.signature = 2;
            launch(rank, rank.combine, &args, grid, mori::device::streamSharedBytes(grid.stage));
        }
    }

    void settle() {
        for (Rank& rank : ranks_) {
            rank.gpu->use();
            CHECK(cuStreamSynchronize(rank.gpu->stream));
            Progress progress;
            CHECK(cuMemcpyDtoH(&progress, rank.progress, sizeof(progress)));
            if (progress.fault != Fault::none) {
                const auto& report = rank.host.notice->wait;
                fprintf(stderr, "fault %u: rank %u waited for rank %u at %llx: expected %llx, saw %llx\n", uint32_t(progress.fault),
                        report.rank, report.peer, (unsigned long long)report.address, (unsigned long long)report.expected,
                        (unsigned long long)report.seen);
                exit(1);
            }
        }
    }

    /// Every row of the last dispatch of a set is where the model says.
    void checkDispatch(uint32_t set) {
        for (Rank& rank : ranks_) {
            rank.gpu->use();
            const Regions& at = rank.host.regions;
            int32_t received = 0;
            CHECK(cuMemcpyDtoH(&received, rank.received, 4));
            std::vector<char> out(uint64_t(received) * shape_.rowBytes() + 1), indices(uint64_t(received) * shape_.topk * 4 + 1);
            std::vector<int32_t> positions(size_t(received) + 1);
            CHECK(cuMemcpyDtoH(out.data(), rank.memory + at.dispatchOut, out.size() - 1));
            CHECK(cuMemcpyDtoH(indices.data(), rank.memory + at.dispatchOutIndices, indices.size() - 1));
            CHECK(cuMemcpyDtoH(positions.data(), rank.memory + at.srcPositions, uint64_t(received) * 4));
            uint32_t slot = 0;
            for (uint32_t source = 0; source < ranks_.size(); source++) {
                const Input& input = ranks_[source].inputs[set % ranks_[source].inputs.size()];
                std::vector<char> rows(uint64_t(tokens_) * shape_.rowBytes() + 1);
                ranks_[source].gpu->use();
                CHECK(cuMemcpyDtoH(rows.data(), input.rows, rows.size() - 1));
                for (uint32_t t = 0; t < tokens_; t++) {
                    if (!goes(input, t, rank.host.rank)) {
                        continue;
                    }
                    require(slot < uint32_t(received), "all rows came");
                    require(memcmp(&out[uint64_t(slot) * shape_.rowBytes()], &rows[uint64_t(t) * shape_.rowBytes()], shape_.rowBytes()) == 0,
                            "a row has its bytes");
                    require(memcmp(&indices[slot * shape_.topk * 4], &input.chosen[t * shape_.topk], shape_.topk * 4) == 0,
                            "a row has its indices");
                    require(positions[slot] == int32_t(source * rank.host.positionStride + t), "a row has its position");
                    slot++;
                }
            }
            require(slot == uint32_t(received), "no row but those");
        }
    }

    /// The elements of a row that a rank made, small whole numbers: sums of eight are exact in bfloat16.
    static uint32_t made(uint32_t rank, uint32_t slot, uint32_t value) { return (slot * 7 + rank * 5 + value) % 31 + 1; }

    /// The rows that the ranks have made lie in CombineIn, and elsewhere.
    void fillCombine(uint32_t value) {
        for (Rank& rank : ranks_) {
            rank.gpu->use();
            for (Input& input : rank.inputs) {
                if (input.outputs == 0) {
                    input.outputs = allocate(uint64_t(rank.host.maxRecv) * shape_.hidden * 2);
                }
            }
            const uint64_t bytes = uint64_t(shape_.hidden) * 2;
            for (uint32_t slot = 0; slot < rank.host.maxRecv; slot++) {
                const float number = float(made(rank.host.rank, slot, value));
                uint32_t bits = 0;
                memcpy(&bits, &number, 4);
                CHECK(cuMemsetD16Async(rank.memory + rank.host.regions.combineIn + slot * bytes, uint16_t(bits >> 16), shape_.hidden, rank.gpu->stream));
            }
            for (const Input& input : rank.inputs) {
                CHECK(cuMemcpyAsync(input.outputs, rank.memory + rank.host.regions.combineIn, rank.host.maxRecv * bytes, rank.gpu->stream));
            }
            CHECK(cuCtxSynchronize());
        }
    }

    void checkCombine(uint32_t set, uint32_t value) {
        std::vector<uint32_t> next(ranks_.size());  // slots, in the order of sources and of tokens
        for (Rank& rank : ranks_) {
            rank.gpu->use();
            std::vector<uint16_t> out(uint64_t(tokens_) * shape_.hidden + 1);
            CHECK(cuMemcpyDtoH(out.data(), rank.memory + rank.host.regions.combineOut, uint64_t(tokens_) * shape_.hidden * 2));
            const Input& input = rank.inputs[set % rank.inputs.size()];
            for (uint32_t t = 0; t < tokens_; t++) {
                float sum = 0;
                for (uint32_t d = 0; d < ranks_.size(); d++) {
                    if (goes(input, t, d)) {
                        sum += float(made(d, next[d]++, value));
                    }
                }
                uint32_t bits = 0;
                memcpy(&bits, &sum, 4);
                for (uint32_t e = 0; e < shape_.hidden; e++) {
                    require(out[uint64_t(t) * shape_.hidden + e] == bits >> 16, "the sum of a token's rows");
                }
            }
        }
    }

    /// Rows that rank 0 sends to others, in one dispatch of a set.
    uint64_t remoteRows(uint32_t set) const {
        uint64_t rows = 0;
        for (uint32_t t = 0; t < tokens_; t++) {
            for (uint32_t d = 1; d < ranks_.size(); d++) {
                rows += goes(ranks_[0].inputs[set], t, d);
            }
        }
        return rows;
    }

    std::vector<Rank>& ranks() { return ranks_; }

private:
    bool goes(const Input& input, uint32_t t, uint32_t rank) const {
        for (uint32_t k = 0; k < shape_.topk; k++) {
            const int32_t expert = input.chosen[t * shape_.topk + k];
            if (expert >= 0 && uint32_t(expert) / shape_.perRank == rank) {
                return true;
            }
        }
        return false;
    }

    template <class Args>
    void launch(const Rank& rank, CUfunction function, Args* args, const Grid& grid, uint32_t warpBytes) {
        rank.gpu->use();
        void* parameters[] = {args};
        const uint32_t shared = grid.stage == 0 ? 0 : warpBytes * (grid.threads / 32);
        CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(std::max(shared, 1024u))));
        CHECK(cuLaunchKernel(function, grid.blocks, 1, 1, grid.threads, 1, 1, shared, rank.gpu->stream, parameters, nullptr));
    }

    Shape shape_;
    uint32_t tokens_ = 0;
    std::vector<Rank> ranks_;
};

void checks(std::vector<Gpu>& gpus, const char* const* ptx, bool small, bool shared) {
    std::mt19937_64 random(5);
    // Of the last one rows are so many that combine sends them.
    const Shape shapes[] = {{2, 3, 100, 128, 2, 0}, {8, 16, 300, 7168, 1, 224}, {6, 4, 65, 514, 1, 6}, {8, 128, 1000, 2048, 2, 0}, {8, 16, 1500, 7168, 2, 0}};
    int count = 0;
    for (const Shape& shape : shapes) {
        World world(gpus, ptx, shape);
        for (const Grid& grid : {Grid{1, 64, 0}, Grid{8, 128, 2048}, Grid{24, 128, 3584}, Grid{64, 256, 1024}, Grid{132, 256, 0}}) {
            if (shared && grid.blocks > 64) {
                continue;  // ranks wait for each other, and there is no room for both
            }
            for (uint32_t tokens : {0u, 1u, 31u, shape.maxTokens}) {
                if (small && (tokens > 31 || grid.blocks > 24)) {
                    continue;
                }
                world.bring(random, tokens, 1, random() % 2 == 0);
                world.dispatch(0, grid);
                world.settle();
                world.checkDispatch(0);
                const auto way = tokens == 1500 ? World::Way::sent : World::Way(random() % 3);
                const uint32_t value = uint32_t(random());
                if (shape.hidden % 2 == 0) {
                    world.fillCombine(value);
                    world.combine(0, grid, way);
                    world.settle();
                    world.checkCombine(0, value);
                }
                count++;
            }
        }
    }
    printf("dispatch and combine: %d rounds right\n", count);
}

double microseconds(World& world, int rounds, int warm, const std::function<void(uint32_t)>& one) {
    Timer timer(*world.ranks()[0].gpu);
    for (int round = -warm; round < rounds; round++) {
        if (round == 0) {
            world.settle();
            world.ranks()[0].gpu->use();
            timer.begin(world.ranks()[0].gpu->stream);
        }
        one(uint32_t(round + warm));
    }
    world.ranks()[0].gpu->use();
    timer.end(world.ranks()[0].gpu->stream);
    const double ms = timer.milliseconds();
    world.settle();
    return ms * 1000 / rounds;
}

/// Every GPU copies so many bytes to the next at once: microseconds.
double memcpyAtOnce(World& world, uint64_t bytes, int rounds) {
    auto& ranks = world.ranks();
    return microseconds(world, rounds, 5, [&](uint32_t) {
        for (size_t r = 0; r < ranks.size(); r++) {
            Rank& to = ranks[(r + 1) % ranks.size()];
            ranks[r].gpu->use();
            CHECK(cuMemcpyAsync(to.memory + to.host.regions.dispatchOut, ranks[r].memory + ranks[r].host.regions.combineIn, bytes,
                                ranks[r].gpu->stream));
        }
    });
}

void bench(std::vector<Gpu>& gpus, const char* const* ptx, bool shared) {
    std::mt19937_64 random(6);
    printf("case,tokens,blocks,threads,stage,us,wire GB/s,memcpy us,ratio\n");
    for (const Shape& shape : {Shape{8, 256 / uint32_t(gpus.size()), 4096, 7168, 1, 224}, Shape{8, 256 / uint32_t(gpus.size()), 4096, 7168, 2, 0}}) {
        World world(gpus, ptx, shape);
        for (uint32_t tokens : {4096u, 128u, 1u}) {
            world.bring(random, tokens, tokens > 1000 ? 4 : 32, false);
            const uint64_t bytes = world.remoteRows(0) * shape.rowBytes();
            const int rounds = tokens > 1000 ? 60 : 200;
            const double raw = bytes != 0 ? memcpyAtOnce(world, bytes, rounds) : 0;
            auto tell = [&](const char* name, const Grid& grid, double us) {
                printf("%s,%u,%u,%u,%u,%.1f,%.0f,%.1f,%.2f\n", name, tokens, grid.blocks, grid.threads, grid.stage, us, double(bytes) / us / 1e3, raw,
                       raw / us);
            };
            std::vector<Grid> grids;
            for (uint32_t blocks : {8u, 16u, 24u, 32u, 64u, 128u}) {
                if (shared && blocks > 64) {
                    continue;
                }
                grids.push_back({blocks, 128, 7168});
                grids.push_back({blocks, 256, 4096});
                grids.push_back({blocks, 256, 0});
            }
            for (const Grid& grid : grids) {
                tell(shape.elementBytes == 1 ? "dispatch fp8" : "dispatch bf16", grid,
                     microseconds(world, rounds, 10, [&](uint32_t i) { world.dispatch(i, grid); }));
            }
            if (shape.elementBytes != 2) {
                continue;
            }
            world.fillCombine(1);
            for (const World::Way way : {World::Way::inPlace, World::Way::copied, World::Way::sent}) {
                const char* const name = way == World::Way::inPlace ? "combine bf16 in place" : way == World::Way::copied ? "combine bf16 copied" : "combine bf16 sent";
                for (const Grid& grid : grids) {
                    if (grid.stage == 7168) {
                        continue;  // through registers, and through all of the shared memory
                    }
                    const Grid use{grid.blocks, grid.threads, grid.stage == 0 ? 0 : 3072u};
                    tell(name, use, microseconds(world, rounds, 10, [&](uint32_t i) { world.combine(i, use, way); }));
                }
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc == 4 ? argv[3] : "";
    require(what == "check" || what == "small" || what == "bench", "usage: ep DISPATCH_PTX COMBINE_PTX check|small|bench");
    CHECK(cuInit(0));
    int count = 0;
    CHECK(cuDeviceGetCount(&count));
    std::vector<Gpu> gpus;
    for (int i = 0; i < std::max(count, 2); i++) {  // two ranks share a GPU that is alone
        gpus.emplace_back(i % count);
    }
    for (const Gpu& gpu : gpus) {
        for (const Gpu& peer : gpus) {
            gpu.reach(peer);
        }
    }
    printf("%d GPUs\n", count);
    if (what == "bench") {
        bench(gpus, argv + 1, count == 1);
    } else {
        checks(gpus, argv + 1, what == "small", count == 1);
    }
    return 0;
}
