// SPDX-License-Identifier: MIT
// Counts how many choices of received rows each expert of this rank has.
#include "mori/device/atomic.hpp"
#include "mori/ep/op.hpp"

/// counts [expertsPerRank] are zeros before. One thread for each choice of a row, in any grid.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_count_local(const mori::ep::CountLocalArgs args) {
    using namespace mori::device;
    const uint64_t choices = uint64_t(*args.rows) * args.topk;
    const uint64_t threads = uint64_t(gridBlocks()) * blockSize();
    for (uint64_t i = uint64_t(blockInGrid()) * blockSize() + threadInBlock(); i < choices; i += threads) {
        const uint32_t expert = uint32_t(args.indices[i]) - args.firstExpert;
        if (expert < args.experts) {
            atomicAdd<Scope::device, Order::relaxed>(reinterpret_cast<uint32_t*>(args.counts) + expert, 1u);
        }
    }
}
