// SPDX-License-Identifier: MIT
/// Arguments of the kernels of dispatch and combine, and what these keep between calls. Package ep/internal/host does the same
/// on host memory, with the arithmetic of package ep/internal/plan (Plan, CountMatrix). Kernels must compute the same.
#pragma once

#include <stdint.h>

#include "mori/device/report.hpp"

namespace mori::ep {

/// The most ranks of an op.
constexpr uint32_t kMostRanks = 64;
/// Threads of a block, at most: with more they would have too few registers for what a warp knows of its tokens, and kernels are no faster.
constexpr uint32_t kMostThreads = 256;
/// And warps.
constexpr uint32_t kMostWarps = 8;
/// Chunks of the rows that one rank sends to another in a combine, at most: their words fill a line.
constexpr uint32_t kSentChunks = 8;

/// The distance of flags. A flag is the 8-byte word at the start of its line: number of the call << kSignatureBits | signature.
constexpr uint32_t kLineBytes = 64;
constexpr uint32_t kSignatureBits = 16;
/// The bits of a call's number that count calls. The bits above count exclusions of ranks.
constexpr uint32_t kEpochShift = 32;
/// The bits of a count's word that are a number of rows (mori/ep/words.hpp).
constexpr uint32_t kRowsBits = 24;

/// Offsets of the regions in an op's symmetric memory, as plan.Layout has them.
struct Regions {
    uint64_t counts, published, arrived, ready, pulled;
    uint64_t dispatchOut, dispatchOutWeights, dispatchOutIndices, dispatchOutScales, srcPositions;
    uint64_t combineIn, combineInScales, combineInWeights;
    uint64_t combineOut, combineOutWeights;
};

/// What went wrong on the device, in the order of what matters to a rank's caller.
enum class Fault : uint32_t {
    none = 0,
    timeout = 1,   ///< a rank did not come: the report tells which
    mismatch = 2,  ///< a rank was called with another shape or type of rows
    counts = 3,    ///< a rank published a number of rows that cannot be
    overflow = 4,  ///< this rank's rows found no room: nothing of it was sent; the op goes on
    rows = 5,      ///< combine was given fewer rows than were received
    network = 6,   ///< a rank of another host is not reached any more: what the report has seen is a status of mori::proxy
    aborted = 7,   ///< the host asked for it by Notice::abort
};

/// What the host is told without asking the GPU, and what it tells kernels that run, in mapped host memory. Zeros at first.
struct Notice {
    device::WaitReport wait;
    Fault fault;           ///< as in Progress
    int32_t rows;          ///< with Fault::rows: that were received
    uint64_t overflowed;   ///< the last dispatch that overflowed, written after what follows
    int32_t overflow[3];   ///< its destination, rows, and rows that were there before
    uint32_t abort;        ///< written by the host: 1 ends all waits, since a rank has died or the op is closed
};

/// What the kernels of one op keep. Zeros at first; the host reads it once a stream has come to rest.
struct Progress {
    uint64_t dispatches, combines;  ///< calls that have been begun
    uint32_t arrivals[2];           ///< blocks that have come to the end of a phase; 0 between launches
    Fault fault;                    ///< timeout, mismatch or counts: every later kernel ends at once
    uint32_t tokens;                ///< of the last dispatch
    uint32_t most;                  ///< rows that it brought to the rank that received most
    int32_t incoming;               ///< rows that the last dispatch brings here, known when all have published
    int32_t overflow[4];            ///< of the last dispatch: source, destination, rows, rows that were there before; source -1: none
    uint32_t sent[kMostRanks][kSentChunks];  ///< rows of a chunk for a rank that have been sent, by parts; 0 between launches
};

/// An op as its kernels see it, in device memory.
struct Op {
    uint64_t bases[kMostRanks];  ///< where each rank's symmetric memory of the op is, as reached from here
    Regions regions;
    uint32_t world, rank, topk, expertsPerRank, experts;
    uint32_t maxRecv;         ///< rows that a rank has room for
    uint32_t maxTokens;       ///< that a rank dispatches, at most
    uint32_t positionStride;  ///< between the positions of two sources
    uint64_t waitLimit;       ///< nanoseconds of each wait
    uint64_t dead;            ///< a bit for each rank that nobody waits for and nothing is sent to
    Progress* progress;
    Notice* notice;
    int32_t* received;  ///< how many rows the last dispatch brought
    int32_t* slots;     ///< [maxTokens, topk]: the routing map of the last dispatch
    float* weights;     ///< [maxTokens, topk]: what the last dispatch was given
};

/// Phases of a call that one launch does.
enum Phase : uint32_t { kSend = 1, kRecv = 2 };

/// One argument, by value. Addresses of rows are aligned to 16 bytes where that is to be fast.
struct DispatchArgs {
    const Op* op;
    const void* input;       ///< [tokens, rowBytes]
    const int32_t* indices;  ///< [tokens, topk]
    const float* weights;    ///< [tokens, topk], or null
    const void* scales;      ///< [tokens, scaleBytes], or null
    const int32_t* route;    ///< [tokens, topk]: the routing map of a dispatch to do again, or null
    uint64_t rowBytes;
    uint32_t scaleBytes;  ///< of a row; 0 without scales
    uint32_t tokens;
    uint32_t phases;
    uint32_t signature;
};

/// How combine's rows lie in CombineIn.
enum class Transport : uint32_t {
    plain = 0,      ///< as they are, in the order in which they were received
    direct = 1,     ///< so, each element as float8
    blockwise = 2,  ///< so, with scales
    push = 3,       ///< plain, or, if rows are many, at their tokens' ranks: that of rank d at d * maxTokens + token. Of the last dispatch, uncapped
};

struct CombineArgs {
    const Op* op;
    const void* input;       ///< [received, hidden] of type; null if the rows lie in CombineIn
    const float* weights;    ///< [received, topk] that travel with the rows, or null
    const int32_t* route;    ///< [tokens, topk]: the routing map that the rows came by; null: that of the last dispatch
    const int32_t* rows;     ///< how many that dispatch brought; null: Op::received
    uint32_t given;          ///< rows that input and weights have, at least
    uint32_t tokens;         ///< of this rank in that dispatch
    uint32_t hidden;         ///< elements of a row
    uint32_t type;           ///< a device::Number
    uint32_t transport;      ///< a Transport
    uint32_t scaleBlocks;    ///< scales of a row with Transport::blockwise
    uint32_t weighted;       ///< multiply each row by the weights that its token gave its experts
    uint32_t phases;
    uint32_t signature;
    uint32_t clearReceived;  ///< set *Op::received to 0 at the end
};

struct CountLocalArgs {
    const int32_t* rows;     ///< how many rows were received
    const int32_t* indices;  ///< [rows, topk]
    int32_t* counts;         ///< [experts]
    uint32_t topk, firstExpert, experts;
};

}  // namespace mori::ep
