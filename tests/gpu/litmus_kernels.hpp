// SPDX-License-Identifier: MIT
// What litmus.cpp hands to the kernels of litmus.cu.
#pragma once

#include <cstdint>

constexpr uint64_t kLine = 128;  // bytes from one test's words to the next one's: no two are of a line
constexpr uint32_t kData = 16;   // words of 4 bytes that a writer stores, as much as a work entry has

/// How a role orders what it does.
enum class How : uint32_t {
    fence = 0,    ///< relaxed accesses, and the library's fence of the system between them
    release = 1,  ///< a store that releases and a load that acquires
    modify = 2,   ///< an atomic operation on a word that both sides modify
    nothing = 3,  ///< relaxed accesses alone: what may go wrong then is the proof that the test sees it
};

/// What a thread saw of one test.
struct Seen {
    uint32_t flag;   ///< the flag, or the other side's word
    uint32_t stale;  ///< words of the data that were old though the flag was new
};

/// The same memory for both sides; each of the arrays has a line for each test. They begin as zeros.
struct Litmus {
    uint8_t* data;
    uint8_t* flags;
    uint8_t* chain;  ///< flags of the writer's GPU alone
    uint8_t* meet;   ///< two words, by which the sides synchronise before each test
    Seen* seen;      ///< mapped host memory, one for each test
    uint64_t tests;
    uint64_t limit;  ///< nanoseconds that a wait may last
    How how;
    uint32_t side;   ///< 0 or 1
    uint64_t* gaveUp;
};
