// SPDX-License-Identifier: MIT
// What shmem.cpp hands to the kernels of shmem.cu.
#pragma once

#include <cstdint>

struct Result {
    uint64_t nanoseconds;
    uint64_t wrong;
};

// Offsets in a heap of 1 MiB.
constexpr uint64_t kTarget = 0;
constexpr uint64_t kSource = 256 << 10;
constexpr uint64_t kSignal = 512 << 10;
constexpr uint64_t kTaken = (512 << 10) + 256;
constexpr uint64_t kSync = 768 << 10;
constexpr uint64_t kHeap = 1 << 20;
