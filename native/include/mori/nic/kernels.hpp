// SPDX-License-Identifier: MIT
/// Arguments of the kernels of native/kernels/nic, each the kernel's one argument, by value. Each kernel ends within its limits and
/// reports in its Outcome how it went.
#pragma once

#include "mori/device/report.hpp"
#include "mori/nic/queue.hpp"
#include "mori/nic/work.hpp"

namespace mori::nic {

constexpr uint32_t kMostThreads = 256;

/// What a kernel tells: zeros before the launch, in memory that the host reads after it. Counters are added up over all blocks.
struct Outcome {
    uint64_t status;       ///< the first that was not kOk
    uint64_t done;         ///< rounds, or pieces of work
    uint64_t wrong;        ///< bytes that are not what they should be
    uint64_t nanoseconds;  ///< of the block that took longest
    device::WaitReport report;
};

/// mori_nic_interchange: fills this side's memory with a value, writes it to the peer's, rings the doorbell and waits for the
/// completion; so often. Blocks share the bytes out, each posts its share, at most kMostBytes, to the one queue. Any blocks of whole
/// warps.
struct InterchangeArgs {
    Queue* queue;
    Outcome* outcome;
    uint64_t limit;  ///< nanoseconds that a wait may last
    Memory mine;
    Memory peer;
    uint64_t bytes;
    uint64_t rounds;
    uint32_t value;  ///< a byte, in the last round; one less in the round before, and so on
    uint32_t rank;
};

/// mori_nic_verify: counts the bytes that are not the value. Any blocks of whole warps.
struct VerifyArgs {
    const uint8_t* memory;
    Outcome* outcome;
    uint64_t bytes;
    uint64_t value;
};

/// mori_nic_ping_pong: two sides, one block each, hand each other a payload and a flag. The flag, 8 bytes, is at ``flag`` of each side's
/// memory, and the payload at 0. Each side begins with flags of 0.
struct PingPongArgs {
    Queue* queue;
    Outcome* outcome;
    uint64_t limit;
    Memory mine;    ///< what is sent
    Memory inbox;   ///< where the peer's payload and flag arrive, on this side
    Memory peer;    ///< the peer's inbox
    uint64_t flag;
    uint64_t bytes;  ///< of the payload
    uint64_t rounds;
    uint32_t begins;  ///< 1 for the side that sends first
    uint32_t atomic;  ///< 1: the flag is added to, so it follows its payload on every network; 0: it is written
};

/// Who posts a piece of a list: one thread, a warp, a block, or the lanes of a warp each one with one doorbell for all.
enum class Posters : uint32_t { thread = 0, warp = 1, block = 2, lanes = 3 };

/// mori_nic_post: posts a list of work, shared out over the grid's threads, warps or blocks, and waits for all of it. Each
/// poster's pieces are in the list's order.
struct PostArgs {
    Queue* queue;
    Outcome* outcome;
    uint64_t limit;
    const Work* work;
    uint64_t count;
    Posters posters;
    uint32_t window;  ///< pieces that a poster has under way before it waits for the last of them; 0: no bound but the ring's
};

}  // namespace mori::nic
