// SPDX-License-Identifier: MIT
/// What a host hands to the kernel mori_io_copy_blocks, which copies a list of segments between memories that the GPU
/// can reach: its own, a mapped peer's, mapped host memory.
///
/// The launch chooses how much of the GPU works: any number of blocks, of whole warps and up to kMostThreads. Dynamic
/// shared memory of mori::device::streamSharedBytes(stageBytes) for each warp of a block lets sm_90 and up copy through
/// it; without it, and elsewhere, the lanes copy through registers.
#pragma once

#include <stdint.h>

namespace mori::io {

constexpr uint32_t kMostThreads = 512;

/// One piece of memory to copy. Source and destination may have any alignment; 16 bytes apart by a multiple of 16 is
/// fast. Destinations do not overlap each other or any source.
struct Segment {
    uint64_t destination;
    uint64_t source;
    uint64_t bytes;
    uint64_t before;  ///< bytes of all segments ahead of this one in the list, by which warps find their share
};

/// The kernel's one argument, by value. The list may be in device memory or in mapped host memory.
///
/// Of blocks of one size the list is two rows of count offsets: of the destinations, then of the sources. A host writes
/// it in half the bytes, and the GPU reads half over PCIe.
struct CopyBlocksArgs {
    const void* list;           ///< segments, or rows of offsets; null: there is one segment, and it is below
    uint64_t count;
    uint64_t total;             ///< bytes of all segments
    uint32_t* arrivals;         ///< device memory of this launch alone, 0 before it and 0 again after; or null: tell nobody
    uint64_t* completion;       ///< where the last block writes completionValue, by a release for the whole system
    uint64_t completionValue;
    Segment one;                ///< in a host's memory it would take a read over PCIe
    uint64_t blockBytes;        ///< the size of every block; 0: the list has segments
    uint64_t destination;       ///< what the offsets count from
    uint64_t source;
};

}  // namespace mori::io
