// SPDX-License-Identifier: MIT
// Brings received rows into the standard-MoE form and back on the CPU, threads for lanes, over random shapes, and holds
// every byte against a model of few lines. Built with sanitizers by tests/python/kernels.
#include "mori/ep/standard.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <random>
#include <thread>
#include <vector>

#include "mori/device/number.hpp"
#include "mori/device/poll.hpp"
#include "threads.hpp"

extern "C" void mori_ep_place(mori::ep::PackArgs args);
extern "C" void mori_ep_pack(mori::ep::PackArgs args);
extern "C" void mori_ep_unpack(mori::ep::UnpackArgs args);

namespace {

using namespace mori::ep;
using mori::device::Number;

void require(bool ok, const char* what) {
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

constexpr int32_t kUntouched = 0x5a5a5a5a;

struct Case {
    uint32_t experts, first, topk, maxRecv, room, hidden;
    Number type;
};

class Packing {
public:
    Packing(const Case& shape, std::mt19937& random) : c_(shape) {
        rowBytes_ = uint64_t(c_.hidden) * mori::device::numberBytes(c_.type);
        indices_.resize(size_t(c_.maxRecv) * c_.topk);
        weights_.resize(indices_.size());
        input_.resize(c_.maxRecv * rowBytes_ + 16);
        packed_.resize(size_t(c_.experts) * c_.room * rowBytes_ + 16);
        out_.resize(input_.size());
        counts_.assign(c_.experts, kUntouched);
        info_.assign(size_t(c_.experts) * c_.room, kUntouched);
        slots_.assign(indices_.size(), kUntouched);
        for (int32_t& index : indices_) {
            index = int32_t(random() % (3 * c_.experts)) + int32_t(c_.first) - int32_t(c_.experts);
        }
        for (float& weight : weights_) {
            weight = float(random() % 9) / 8;
        }
        for (unsigned char& byte : input_) {
            byte = uint8_t(random());
        }
    }

    void run(int32_t rows, uint32_t blocks, uint32_t threads, std::mt19937& random) {
        const size_t odd = random() % 3 == 0 ? mori::device::numberBytes(c_.type) : 0;  // addresses that are not aligned, too
        int32_t noted = kUntouched;
        PackArgs args{};
        args.received = &rows, args.indices = indices_.data(), args.input = input_.data() + odd, args.packed = packed_.data() + odd;
        args.counts = counts_.data(), args.info = info_.data(), args.slots = slots_.data(), args.rows = &noted;
        args.rowBytes = rowBytes_, args.maxRecv = c_.maxRecv, args.topk = c_.topk;
        args.firstExpert = c_.first, args.experts = c_.experts, args.room = c_.room;
        launch(blocks, threads, [&] { mori_ep_place(args); });
        launch(blocks + 1, threads, [&] { mori_ep_pack(args); });
        const uint32_t valid = rows < 0 || uint32_t(rows) > c_.maxRecv ? 0 : uint32_t(rows);
        require(noted == int32_t(valid), "the number of rows is kept");
        check(valid, odd);
        if (c_.type == Number::float32 || c_.type == Number::bfloat16) {
            unpack(valid, &noted, odd, blocks, threads, random);
        }
    }

private:
    /// Row after row: where each choice's row must lie.
    void check(uint32_t rows, size_t odd) {
        std::vector<int32_t> counts(c_.experts);
        for (uint32_t row = 0; row < c_.maxRecv; row++) {
            for (uint32_t k = 0; k < c_.topk; k++) {
                const size_t choice = size_t(row) * c_.topk + k;
                const int64_t e = int64_t(indices_[choice]) - c_.first;
                if (row >= rows) {
                    require(slots_[choice] == kUntouched, "rows that did not come have no slots");
                    continue;
                }
                if (e < 0 || e >= c_.experts) {
                    require(slots_[choice] == -1, "an expert elsewhere has no slot");
                    continue;
                }
                bool again = false;
                for (uint32_t before = 0; before < k; before++) {
                    again = again || indices_[size_t(row) * c_.topk + before] == indices_[choice];
                }
                counts[e] += !again;
                const size_t slot = size_t(e) * c_.room + counts[e] - 1;
                require(slots_[choice] == int32_t(slot), "the slot of a choice");
                require(info_[slot] == int32_t(row), "the row of a place");
                require(memcmp(packed_.data() + odd + slot * rowBytes_, input_.data() + odd + row * rowBytes_, rowBytes_) == 0, "a row's bytes");
            }
        }
        for (uint32_t e = 0; e < c_.experts; e++) {
            require(counts_[e] == counts[e], "the count of an expert");
            for (uint32_t place = uint32_t(counts[e]); place < c_.room; place++) {
                require(info_[size_t(e) * c_.room + place] == kUntouched, "what lies behind an expert's rows is left alone");
            }
        }
    }

    float packedAt(size_t slot, uint32_t element, size_t odd) const {
        const unsigned char* at = packed_.data() + odd + slot * rowBytes_ + uint64_t(element) * mori::device::numberBytes(c_.type);
        if (c_.type == Number::float32) {
            float value;
            memcpy(&value, at, 4);
            return value;
        }
        uint16_t bits;
        memcpy(&bits, at, 2);
        return mori::device::toFloat<Number::bfloat16>(bits);
    }

    void unpack(uint32_t rows, const int32_t* noted, size_t odd, uint32_t blocks, uint32_t threads, std::mt19937& random) {
        for (size_t i = 0; i + 4 <= packed_.size() - odd; i += mori::device::numberBytes(c_.type)) {  // small numbers: sums are exact
            const float value = float(random() % 64);
            const uint16_t bits = uint16_t(mori::device::fromFloat<Number::bfloat16>(value, false));
            memcpy(packed_.data() + odd + i, c_.type == Number::float32 ? static_cast<const void*>(&value) : &bits,
                   mori::device::numberBytes(c_.type));
        }
        Op op{};
        Progress progress{};
        op.progress = &progress;
        UnpackArgs args{};
        args.op = &op, args.packed = packed_.data() + odd, args.slots = slots_.data(), args.rows = noted;
        args.weights = weights_.data(), args.out = out_.data() + odd;
        args.topk = c_.topk, args.hidden = c_.hidden, args.type = uint32_t(c_.type);
        launch(blocks, threads, [&] { mori_ep_unpack(args); });
        for (uint32_t row = 0; row < rows; row++) {
            for (uint32_t e = 0; e < c_.hidden; e++) {
                float want = 0;
                for (uint32_t k = 0; k < c_.topk; k++) {
                    const size_t choice = size_t(row) * c_.topk + k;
                    if (slots_[choice] >= 0) {
                        want += weights_[choice] * packedAt(size_t(slots_[choice]), e, odd);
                    }
                }
                const unsigned char* at = out_.data() + odd + row * rowBytes_ + uint64_t(e) * mori::device::numberBytes(c_.type);
                float got;
                if (c_.type == Number::float32) {
                    memcpy(&got, at, 4);
                } else {
                    uint16_t bits;
                    memcpy(&bits, at, 2);
                    got = mori::device::toFloat<Number::bfloat16>(bits);
                    want = mori::device::toFloat<Number::bfloat16>(mori::device::fromFloat<Number::bfloat16>(want, false));
                }
                require(got == want, "the sum of a row's choices");
            }
        }
    }

    Case c_;
    uint64_t rowBytes_;
    std::vector<int32_t> indices_, counts_, info_, slots_;
    std::vector<float> weights_;
    std::vector<unsigned char> input_, packed_, out_;
};

/// A row that the last combine may still be read from is not written: the wait ends, and tells for whom.
void waitsForReaders() {
    Op op{};
    Progress progress{};
    Notice notice{};
    std::vector<unsigned char> memory(4 * kLineBytes);
    int32_t rows = 1, slot = 0;
    float weight = 1, packed = 3, out = 7;
    op.bases[0] = uint64_t(memory.data()), op.bases[1] = uint64_t(memory.data());
    op.world = 2, op.progress = &progress, op.notice = &notice;
    op.waitLimit = 50'000'000;
    progress.combines = 5;
    auto flag = [&](int rank) { return reinterpret_cast<uint64_t*>(memory.data() + rank * kLineBytes); };
    *flag(0) = uint64_t(5) << kSignatureBits, *flag(1) = uint64_t(4) << kSignatureBits;
    UnpackArgs args{};
    args.op = &op, args.packed = &packed, args.slots = &slot, args.rows = &rows, args.weights = &weight, args.out = &out;
    args.topk = 1, args.hidden = 1, args.type = uint32_t(Number::float32), args.pulled = 1;
    launch(1, 8, [&] { mori_ep_unpack(args); });
    require(out == 7 && progress.fault == Fault::timeout && notice.wait.peer == 1, "a rank still reads");
    progress.fault = Fault::none;
    *flag(1) = uint64_t(5) << kSignatureBits;
    launch(1, 8, [&] { mori_ep_unpack(args); });
    require(out == 3, "all ranks have read");
}

}  // namespace

int main() {
    std::mt19937 random(7);
    for (int i = 0; i < 60; i++) {
        const uint32_t most = random() % 70;
        const Number types[] = {Number::float32, Number::bfloat16, Number::float8E4M3FN};
        const Case shape{1 + uint32_t(random() % 5), uint32_t(random() % 3) * 4, 1 + uint32_t(random() % 11), most,
                         most + uint32_t(random() % 9), 1 + uint32_t(random() % 40), types[random() % 3]};
        Packing packing(shape, random);
        const int32_t rows = i % 10 == 0 ? int32_t(most) + 1 : i % 10 == 1 ? -1 : int32_t(random() % (most + 1));
        packing.run(rows, 1 + random() % 4, 8 * (1 + random() % 3), random);
    }
    waitsForReaders();
    printf("all ran\n");
    return 0;
}
