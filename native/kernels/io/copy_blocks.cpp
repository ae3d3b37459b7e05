// SPDX-License-Identifier: MIT
// Copies a list of segments: the KV cache's blocks, wherever they lie. See mori/io/copy_blocks.hpp.
//
// Laid end to end the segments are one run of bytes; every warp takes an equal share of it. So a long segment is cut, short
// ones are packed, and no warp waits for another until the last block tells that all is done.
#include "mori/io/copy_blocks.hpp"

#include "mori/device/atomic.hpp"
#include "mori/device/copy_stream.hpp"

namespace mori::io {
namespace {

using namespace mori::device;

/// Shares begin on lines of their segment: what two warps write has no line in common.
constexpr uint64_t kLine = 128;

/// A run of bytes of the list, from begin up to end.
struct Share {
    uint64_t begin, end;
};

MORI_DEVICE_INLINE Share shareOfWarp(uint64_t total) {
    const uint64_t warps = gridWarps();
    const uint64_t mine = warpInGrid();
    const uint64_t each = total / warps;
    const uint64_t rest = total % warps;  // the first ones take a byte more
    const uint64_t begin = mine * each + (mine < rest ? mine : rest);
    return {begin, begin + each + (mine < rest ? 1 : 0)};
}

/// The part of the byte's distance into a segment that is left to the warp before: whole lines.
MORI_DEVICE_INLINE uint64_t cut(uint64_t byte, uint64_t before) {
    return byte > before ? (byte - before) / kLine * kLine : 0;
}

MORI_DEVICE_INLINE Segment broadcast(const Segment& own, uint32_t lane) {
    return {warpBroadcast(own.destination, lane), warpBroadcast(own.source, lane), warpBroadcast(own.bytes, lane),
            warpBroadcast(own.before, lane)};
}

MORI_DEVICE_INLINE uint64_t joined(uint32_t low, uint32_t high) { return uint64_t(high) << 32 | low; }

/// The lane's segment of the ``window`` ones that begin at index; an empty one behind them and behind the list's end.
MORI_DEVICE_INLINE Segment loadSegment(const CopyBlocksArgs& args, uint64_t index, uint32_t window) {
    const uint64_t mine = index + laneInWarp();
    if (laneInWarp() >= window || mine >= args.count) {
        return {};
    }
    if (args.blockBytes != 0) {
        const uint64_t* offsets = static_cast<const uint64_t*>(args.list);
        return {args.destination + loadOnce<uint64_t>(&offsets[mine]),
                args.source + loadOnce<uint64_t>(&offsets[args.count + mine]), args.blockBytes, mine * args.blockBytes};
    }
    const Segment* segment = static_cast<const Segment*>(args.list) + mine;
    const Chunk ends = loadOnce<Chunk>(&segment->destination);
    const Chunk size = loadOnce<Chunk>(&segment->bytes);
    return {joined(ends.words[0], ends.words[1]), joined(ends.words[2], ends.words[3]),
            joined(size.words[0], size.words[1]), joined(size.words[2], size.words[3])};
}

/// The last segment that begins at or before the byte. Each lane looks at one of kWarpSize places a round, so a list of
/// thousands takes three rounds of a memory's latency.
MORI_DEVICE_INLINE uint64_t findSegment(const Segment* segments, uint64_t count, uint64_t byte) {
    uint64_t low = 0;
    while (count > 1) {
        const uint64_t step = (count + kWarpSize - 1) / kWarpSize;
        const uint64_t place = laneInWarp() * step;
        const bool before = place < count && loadOnce<uint64_t>(&segments[low + place].before) <= byte;
        const uint64_t skipped = (bitCount(warpBallot(before)) - 1) * step;  // lane 0's place is never behind the byte
        low += skipped;
        count = count - skipped < step ? count - skipped : step;
    }
    return low;
}

MORI_DEVICE_INLINE void copyPart(const Segment& segment, Share share, CopyStream& stream) {
    const uint64_t begin = cut(share.begin, segment.before);
    const bool whole = segment.before + segment.bytes <= share.end;
    const uint64_t end = whole ? segment.bytes : cut(share.end, segment.before);
    if (begin < end) {
        stream.copy(reinterpret_cast<char*>(segment.destination) + begin,
                    reinterpret_cast<const char*>(segment.source) + begin, end - begin);
    }
}

MORI_DEVICE_INLINE void copyShare(const CopyBlocksArgs& args, Share share, CopyStream& stream) {
    // Most lists are of equal blocks: then this is where the share begins and what it needs, no more is read. In a list
    // that is in the host's memory every look costs, and PCIe is slow.
    const double segmentsPerByte = double(args.count) / double(args.total);
    uint64_t index = args.blockBytes != 0 ? share.begin / args.blockBytes : uint64_t(double(share.begin) * segmentsPerByte);
    index = index < args.count ? index : args.count - 1;
    const double guess = double(share.end - share.begin) * segmentsPerByte + 2;
    const uint32_t window = guess < kWarpSize ? uint32_t(guess) : kWarpSize;

    Segment next = loadSegment(args, index, window);
    const Segment first = broadcast(next, 0);
    if (share.begin < first.before || share.begin >= first.before + first.bytes) {  // never so of blocks of one size
        index = findSegment(static_cast<const Segment*>(args.list), args.count, share.begin);
        next = loadSegment(args, index, window);
    }
    for (; index < args.count; index += window) {
        const Segment own = next;
        const uint64_t left = args.count - index;
        const uint32_t here = left < window ? uint32_t(left) : window;
        const bool more = warpBroadcast(own.before + own.bytes, here - 1) < share.end;
        if (more) {  // on their way while these are copied
            next = loadSegment(args, index + here, window);
        }
        for (uint32_t i = 0; i < here; i++) {
            const Segment segment = broadcast(own, i);
            if (segment.before >= share.end) {
                break;
            }
            copyPart(segment, share, stream);
        }
        if (!more) {
            return;
        }
    }
}

/// The last block of the grid to come here tells the host. Fences of a GPU that writes to a peer wait for the link: a block that is alone
/// has that of the release, and no arrival.
MORI_DEVICE_INLINE void tellDone(const CopyBlocksArgs& args) {
    if (args.arrivals == nullptr) {
        return;
    }
    blockSync();
    if (threadInBlock() != 0) {
        return;
    }
    if (gridBlocks() > 1) {
        fence<Scope::system>();  // this block's copies, before its arrival
        if (atomicAdd<Scope::device, Order::acqRel>(args.arrivals, 1u) != gridBlocks() - 1) {
            return;
        }
        atomicStore<Scope::device, Order::relaxed>(args.arrivals, 0u);
    }
    atomicStore<Scope::system, Order::release>(args.completion, args.completionValue);
}

}  // namespace
}  // namespace mori::io

extern "C" MORI_DEVICE_KERNEL(mori::io::kMostThreads) void mori_io_copy_blocks(const mori::io::CopyBlocksArgs args) {
    const mori::io::Share share = mori::io::shareOfWarp(args.total);
    mori::device::CopyStream stream;
    if (share.begin < share.end) {
        if (args.list == nullptr) {
            mori::io::copyPart(args.one, share, stream);
        } else {
            mori::io::copyShare(args, share, stream);
        }
    }
    stream.finish();
    mori::io::tellDone(args);
}
