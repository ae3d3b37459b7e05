// SPDX-License-Identifier: MIT
// What signal.cpp hands to the kernels of signal.cu.
#pragma once

#include <cstdint>

struct PingPong {
    uint64_t* mine;       // payload and, 64 bytes on, the flag: the peer writes them
    uint64_t* peers;      // the peer's own
    uint64_t rounds;
    uint64_t limit;       // nanoseconds that a wait may last
    uint32_t first;       // 1: begins
    uint32_t rank;
    struct Outcome* out;  // mapped host memory
};

struct Outcome {
    uint64_t nanoseconds;  // of all rounds
    uint64_t wrong;        // payloads that came after their flag
    uint64_t gaveUp;
    uint64_t report[5];    // a mori::device::WaitReport
};
