// SPDX-License-Identifier: MIT
/// What dispatch and combine need besides an Op where some ranks are on other hosts, so that loads and stores do not reach them.
///
/// Rows go between hosts by whatever reaches the PE there, a proxy's queue or a NIC's (mori/shmem/network.hpp), from memory that the network knows to
/// memory that it knows: a chunk of rows at a time, by one put each, and behind each a flag. In a dispatch a record, a row with all that belongs to it, goes
/// to a forwarder of the other host, which copies it to where it belongs. In a combine each rank puts the rows of a token's rank next to each other already
/// (they lie so in CombineIn), and that rank sums them; or the forwarder sums what its host has of a token and sends that (mori/ep/forward.hpp).
#pragma once

#include "mori/ep/op.hpp"
#include "mori/shmem/state.hpp"

namespace mori::ep {

/// Chunks that a rank sends to one other in a call, at most.
constexpr uint32_t kMostChunks = 64;
/// What a chunk of records begins with: a ChunkHead, and then nothing.
constexpr uint32_t kHeadBytes = 64;

/// Where the Block of a line of Hosts::requests is.
constexpr uint32_t kRequestBytes = 16;

struct ChunkHead {
    uint32_t records;
    uint32_t last;     ///< no chunk follows
    uint32_t weights;  ///< the records have some
    uint32_t scales;   ///< bytes of scales of each record: 0, or Hosts::scaleBytes
};

/// The block of rows that one rank has of another's tokens, and where it goes in a combine.
struct Block {
    uint32_t first;  ///< slot of its first row
    uint32_t rows;
    uint32_t place;  ///< rows that lie before it at the rank of the tokens, of other ranks that are far
    uint32_t reserved;
};

/// What kernels keep of this, in device memory. Zeros at first.
struct HostsProgress {
    uint32_t arrivals[kMostChunks];  ///< blocks that have done their part of a chunk; 0 between launches
    Block made[kMostRanks];          ///< of the last dispatch: rows here, of tokens of each rank
    Block sent[kMostRanks];          ///< and this rank's rows at each
    Block routed[kMostRanks];        ///< the same by the routing map of a combine
    uint64_t routes;                 ///< number of the combine that routed is of
    uint64_t rowBytes;               ///< of the rows of the last dispatch
};

/// Offsets are from where the op's symmetric memory begins.
struct Hosts {
    const shmem::State* network;  ///< of the World, whose PEs are the ranks: how those that are far are reached; its heap has the op's symmetric memory
    HostsProgress* progress;
    uint64_t near;         ///< a bit for each rank that loads and stores reach, this one among them
    uint32_t perHost;      ///< ranks of a host, whose numbers follow each other
    uint32_t hierarchical; ///< 1: a token goes once to each other host, to the rank of this one's place there; 0: to each rank
    uint64_t chunkFlags;   ///< [peers][kMostChunks] words: chunks of records that have come
    uint64_t rowFlags;     ///< [far ranks][kMostChunks] words: chunks of combine's rows that have come
    uint64_t requests;     ///< [2][world] lines: a flag, and at kRequestBytes a Block: requests of others by a routing map, and those of this rank
    uint64_t outgoing;     ///< [peers] of peerBytes: records on their way
    uint64_t incoming;     ///< the same, of others
    uint64_t peerBytes;
    uint64_t rows;         ///< combine's rows, then their scales, then their weights; or the sums of other hosts: [peers, maxTokens]
    uint64_t sums;         ///< [peers, maxTokens]: sums of this host on their way
    uint32_t* places;      ///< [peers, maxTokens]: the record of a token in its chunk, as the last dispatch sent it; null: hosts do not sum
    uint32_t scaleBytes;   ///< room for the scales of a record
    uint32_t chunkBytes;   ///< about as long a chunk is, unless there were too many
};

struct HostsDispatchArgs {
    DispatchArgs call;
    const Hosts* hosts;
};

struct HostsCombineArgs {
    CombineArgs call;
    const Hosts* hosts;
};

}  // namespace mori::ep
