// SPDX-License-Identifier: MIT
/// What a GPU and a host's proxy share: commands that the GPU posts, and a board on which the host answers. Hosts read it
/// without a compiler of GPU code. tools/abigen writes the Go side.
#pragma once

#include <stdint.h>

#include "mori/device/report.hpp"

namespace mori::proxy {

/// What a command does.
enum class Kind : uint32_t {
    put = 1,
    get = 2,
    putSignal = 3,  ///< a put, and then a change of a word of 8 bytes at the peer
    immediate = 4,  ///< a put of up to 8 bytes that are in the command
    atomic = 5,
    fetch = 6,  ///< an atomic whose old value comes back
    fence = 7,  ///< what follows to this PE takes effect after what came before
};

/// The atomics, by the numbers of core/fabric.
enum class Atomic : uint32_t { add = 3, bitOr = 7, bitAnd = 8, bitXor = 10, read = 11, set = 12, compareSwap = 13 };

/// A command is two words, and the top bit of each is the parity of the ring's lap, so that a reader that finds it in both
/// has a whole one: no store of 16 bytes has to be atomic.
///
///     first word    [0,40) offset in the PE's region 0   [40,56) PE   [56,61) kind   [61] it has a Detail   [63] lap
///     second word   [0,40) offset in this side's region 0   [40,63) bytes   [63] lap
///     with a Detail [0,8) atomic   [8,16) bytes of its word   [16,32) the PE's region   [32,48) the signal's   [63] lap
struct alignas(16) Command {
    uint64_t first, second;
};

constexpr uint32_t kPlaceBits = 40;
constexpr uint32_t kPeBits = 16;
constexpr uint32_t kBytesBits = 23;
constexpr uint32_t kKindShift = kPlaceBits + kPeBits;
constexpr uint64_t kHasDetail = 1ull << 61;
constexpr uint32_t kLapShift = 63;
// In the second word of a command with a Detail.
constexpr uint32_t kWordShift = 8;
constexpr uint32_t kRegionShift = 16;
constexpr uint32_t kSignalRegionShift = 32;

/// What does not fit a command. Slot n's belongs to the command in slot n, and is written before it.
struct Detail {
    uint64_t local;    ///< an address of this side
    uint64_t remote;   ///< an offset in the PE's region
    uint64_t bytes;
    uint64_t value;    ///< immediate, operand, or the signal's
    uint64_t compare;
    uint64_t signal;   ///< an offset in the signal's region
};

/// Where the old value of a fetch comes to.
struct Result {
    uint64_t value;
    uint64_t ticket;  ///< whose it is, written last
};

/// What the host tells, in one word, since a GPU's look at it takes a microsecond.
struct Board {
    uint64_t ended;  ///< commands that have ended, and kTrouble and kClosed
    uint64_t reserved[7];
    device::WaitReport report;  ///< of a wait of the GPU that gave up
    uint64_t reserved2[3];
};

constexpr uint64_t kTrouble = 1ull << 63;  ///< some PE's status is not 0
constexpr uint64_t kClosed = 1ull << 62;   ///< nobody reads commands any more
constexpr uint64_t kEndedMask = kClosed - 1;

/// What the GPU's threads share among themselves.
struct State {
    uint64_t head;    ///< commands for which a slot was taken
    uint64_t ended;   ///< what somebody saw of Board.ended
    uint32_t broken;  ///< a wait for a slot gave up: the ring has a hole, and nothing behind it is read
    uint32_t reserved[11];
};

constexpr uint32_t kQueueVersion = 1;

/// A queue as kernels get it: in the GPU's memory, and constant.
struct Queue {
    uint32_t version;  ///< kQueueVersion
    uint32_t log;      ///< of the number of slots
    uint32_t pes;
    uint32_t reserved;
    Command* ring;
    Detail* details;
    Result* results;
    Board* board;
    const uint32_t* status;  ///< one for each PE: 0, or the number of the error after which it takes no more
    State* state;
    uint32_t* busy;      ///< one for each slot: 1 while a fetch waits for its result
    uint64_t local;      ///< where this side's region 0 begins
    uint64_t waitLimit;  ///< nanoseconds that a wait may last
    uint64_t reserved2[4];
};

/// What a wait says beside 0 and the numbers of the system's errors, which are a PE's status.
constexpr uint32_t kRefused = 0x10001;  ///< the arguments are wrong, and nothing was posted
constexpr uint32_t kTimeout = 0x10002;  ///< the wait's limit is over; Board.report tells of the first
constexpr uint32_t kStopped = 0x10003;  ///< the host has closed the queue, or the ring has a hole

}  // namespace mori::proxy
