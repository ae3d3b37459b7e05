// SPDX-License-Identifier: MIT
#include "nic_queue.hpp"

#include "nic_mlx5.hpp"

namespace {

constexpr uint32_t kLog = 4;

/// Zeros on a cache line.
struct Lines {
    explicit Lines(uint64_t bytes) : at(aligned_alloc(64, (bytes + 63) / 64 * 64)) { memset(at, 0, bytes); }
    ~Lines() { free(at); }
    Lines(const Lines&) = delete;
    Lines& operator=(const Lines&) = delete;
    void* at;
};

/// A memory key allows no relaxed order where flags are written as data.
Manners ordered(uint64_t seed) {
    Manners manners(seed);
    manners.relaxed = false;
    manners.naps = true;
    return manners;
}

}  // namespace

struct NicQueue::Inside {
    explicit Inside(uint64_t seed) : memory(ReferenceNic::bytesOf(kLog)), nic(seed, ordered(seed), kLog, 0, memory.at) {}
    Lines memory;
    ReferenceNic nic;
};

NicQueue::NicQueue(uint64_t seed, const std::vector<mori::nic::Memory>& known) : inside_(std::make_unique<Inside>(seed)) {
    for (const mori::nic::Memory& memory : known) {
        inside_->nic.add({memory.lkey, reinterpret_cast<uint8_t*>(memory.addr), memory.bytes});
    }
}

NicQueue::~NicQueue() = default;

mori::nic::Queue* NicQueue::queue() const { return inside_->nic.queue(); }
