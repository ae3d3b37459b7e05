// SPDX-License-Identifier: MIT
// Queues of reference NICs for tests of what posts to several.
#pragma once

#include <stdint.h>

#include <memory>
#include <vector>

#include "mori/nic/queue.hpp"

/// A queue whose NIC does what is posted, as early or late as its seed says, and in order.
class NicQueue {
public:
    /// known is memory that it may read and write, each as the NIC's Memory.
    NicQueue(uint64_t seed, const std::vector<mori::nic::Memory>& known);
    ~NicQueue();
    mori::nic::Queue* queue() const;

private:
    struct Inside;
    std::unique_ptr<Inside> inside_;
};
