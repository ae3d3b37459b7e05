// SPDX-License-Identifier: MIT
/// Arguments and results of the kernels in native/kernels/proxy.
#pragma once

#include "mori/proxy/layout.hpp"

namespace mori::proxy {

/// What the threads of a put, store or add found, in mapped host memory. Zeros before the launch.
struct PutOutcome {
    uint64_t nanoseconds;  ///< of the slowest thread
    uint64_t failed;       ///< waits that did not succeed
    uint32_t status;       ///< of one of them
    uint32_t reserved;
};

/// What one side of the interchange found, in mapped host memory. Zeros before the launch.
struct InterchangeOutcome {
    uint64_t nanoseconds;
    uint64_t wrong;   ///< bytes
    uint64_t rounds;  ///< that were done
    uint32_t status;  ///< why it ended before the last round, or 0
    uint32_t reserved;
};

/// The argument of both kernels of the interchange, by value. Regions 0 are data. Regions 1 are words in host memory: [0]
/// counts rounds that have arrived, [1] rounds that were verified.
struct InterchangeSide {
    const Queue* queue;
    uint64_t local;  ///< the buffer
    uint64_t bytes;
    uint64_t* words;
    uint64_t rounds;
    uint32_t value;  ///< of the bytes in the last round; one more in the round before, and so on
    uint32_t peer;
    InterchangeOutcome* outcome;
};

}  // namespace mori::proxy
