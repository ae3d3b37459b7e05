// SPDX-License-Identifier: MIT
/// A kernel's own work for a NIC: the one header that kernels include.
///
///     using namespace mori::nic;
///     constexpr Provider kNic = Provider::mlx5;              // one module for each family
///     const Channel channel{queue, limit, report, rank, peer};
///     Posted put = post<kNic, Group::block>(channel, write(peer, 0, mine, 0, bytes));
///     uint64_t status = quiet<kNic, Group::block>(channel, put);    // kOk: it is done at the peer
///
/// Many threads, warps and blocks may use one queue at once. Work of one queue begins in the order of its posts. The peer sees
/// an atomic operation, or an immediate value, after the writes that were posted before it; a write's own bytes it may see in any order.
///
/// Waits last as long as the channel's limit says. A wait for completions that gives up returns kTimedOut; one for room in the
/// ring or for a turn leaves kStalled as the queue's status, as does a NIC's error its syndrome. Then all later work returns
/// that status at once, and the host must make a new queue.
///
/// What a thread has written before it posts, or has seen of others by warpSync, blockSync or an acquire, is what the NIC reads.
#pragma once

#include "mori/device/lanes.hpp"
#include "mori/nic/bnxt.hpp"
#include "mori/nic/ionic.hpp"
#include "mori/nic/mlx5.hpp"
#include "mori/nic/post.hpp"

namespace mori::nic {

/// Who makes one piece of work together: each thread its own, all lanes of a warp, all threads of a block. The whole group calls,
/// with the same work, and meets before it is posted; all get the answer.
enum class Group { thread, warp, block };

// ---- work ----

/// Offsets are from the beginning of the memory. Nothing is checked here: the NIC refuses what is not registered.
MORI_DEVICE_INLINE Work moving(Kind kind, const Memory& peer, uint64_t there, const Memory& mine, uint64_t here, uint64_t bytes) {
    Work work{};
    work.kind = kind;
    work.remote = peer.addr + there;
    work.rkey = peer.rkey;
    work.local = mine.addr + here;
    work.lkey = mine.lkey;
    work.bytes = bytes;
    return work;
}

MORI_DEVICE_INLINE Work write(const Memory& peer, uint64_t there, const Memory& mine, uint64_t here, uint64_t bytes) {
    return moving(Kind::write, peer, there, mine, here, bytes);
}

MORI_DEVICE_INLINE Work read(const Memory& peer, uint64_t there, const Memory& mine, uint64_t here, uint64_t bytes) {
    return moving(Kind::read, peer, there, mine, here, bytes);
}

/// Goes to the peer's next receive.
MORI_DEVICE_INLINE Work send(const Memory& mine, uint64_t here, uint64_t bytes) {
    return moving(Kind::send, Memory{}, 0, mine, here, bytes);
}

/// Up to NIC::kMostInline bytes (mlx5 92, bnxt 96, ionic 32), of any memory of this thread's.
MORI_DEVICE_INLINE Work writeInline(const Memory& peer, uint64_t there, const void* from, uint64_t bytes) {
    return moving(Kind::writeInline, peer, there, Memory{uint64_t(from), bytes, 0, 0}, 0, bytes);
}

/// The low 1 to 8 bytes of a value.
MORI_DEVICE_INLINE Work writeValue(const Memory& peer, uint64_t there, uint64_t value, uint64_t bytes = 8) {
    Work work = moving(Kind::writeValue, peer, there, Memory{}, 0, bytes);
    work.value = value;
    return work;
}

/// The 8 bytes that were at the peer's come to ``here``. Only NICs may change a word that NICs add to.
MORI_DEVICE_INLINE Work fetchAdd(const Memory& peer, uint64_t there, const Memory& mine, uint64_t here, uint64_t value) {
    Work work = moving(Kind::fetchAdd, peer, there, mine, here, 8);
    work.value = value;
    return work;
}

MORI_DEVICE_INLINE Work compareSwap(const Memory& peer, uint64_t there, const Memory& mine, uint64_t here, uint64_t expected,
                                    uint64_t value) {
    Work work = moving(Kind::compareSwap, peer, there, mine, here, 8);
    work.value = value;
    work.compare = expected;
    return work;
}

/// Of 4 or 8 bytes; the sum is made in fields that end at the bits of ``ends``: 0 is one field, all bits is an exclusive or.
MORI_DEVICE_INLINE Work maskedFetchAdd(const Memory& peer, uint64_t there, const Memory& mine, uint64_t here, uint64_t value,
                                       uint64_t ends, uint64_t bytes) {
    Work work = moving(Kind::maskedFetchAdd, peer, there, mine, here, bytes);
    work.value = value;
    work.valueMask = ends;
    return work;
}

/// Of 4 or 8 bytes. Where the bits of compareMask are equal, those of valueMask are swapped; with a compareMask of 0, always.
MORI_DEVICE_INLINE Work maskedCompareSwap(const Memory& peer, uint64_t there, const Memory& mine, uint64_t here,
                                          uint64_t expected, uint64_t compareMask, uint64_t value, uint64_t valueMask,
                                          uint64_t bytes) {
    Work work = compareSwap(peer, there, mine, here, expected, value);
    work.kind = Kind::maskedCompareSwap;
    work.bytes = bytes;
    work.valueMask = valueMask;
    work.compareMask = compareMask;
    return work;
}

/// The same work with bits of Work::flags.
MORI_DEVICE_INLINE Work with(Work work, uint32_t flags) {
    work.flags |= flags;
    return work;
}

// ---- posts ----

/// Posts a piece of work of the group.
template <Provider provider, Group group = Group::thread>
MORI_DEVICE_INLINE Posted post(const Channel& channel, const Work& work) {
    using namespace device;
    Posted posted{};
    if constexpr (group == Group::thread) {
        eachLane([&] { posted = internal::postOne<provider>(channel, work); });
    } else if constexpr (group == Group::warp) {
        warpSync();
        if (laneInWarp() == 0) {
            posted = internal::postOne<provider>(channel, work);
        }
        posted = {warpBroadcast(posted.upto, 0), warpBroadcast(posted.status, 0)};
    } else {
        MORI_DEVICE_SHARED(Posted, answer);
        blockSync();
        if (threadInBlock() == 0) {
            answer = internal::postOne<provider>(channel, work);
        }
        blockSync();
        posted = answer;
    }
    return posted;
}

/// Waits with the group for what it has posted: one of its threads looks, and all know what it saw.
template <Provider provider, Group group>
MORI_DEVICE_INLINE uint64_t quiet(const Channel& channel, const Posted& posted) {
    using namespace device;
    uint64_t status = kOk;
    if constexpr (group == Group::thread) {
        status = quiet<provider>(channel, posted);
    } else if constexpr (group == Group::warp) {
        if (laneInWarp() == 0) {
            status = quiet<provider>(channel, posted);
        }
        warpSync();
        status = warpBroadcast(status, 0);
    } else {
        MORI_DEVICE_SHARED(uint64_t, answer);
        blockSync();
        if (threadInBlock() == 0) {
            answer = quiet<provider>(channel, posted);
        }
        blockSync();
        status = answer;
    }
    return status;
}

/// Each lane of a warp posts a piece of its own, with one doorbell and one completion for all: the way to many small pieces. A lane
/// whose work is none (nop) posts nothing.
template <Provider provider>
MORI_DEVICE_INLINE Posted postLanes(const Channel& channel, const Work& work) {
    using namespace device;
    Queue& queue = *channel.queue;
    const bool posts = work.kind != Kind::nop;
    const uint32_t own = posts ? NIC<provider>::blocks(work) : 0;
    uint32_t before = 0;
    uint32_t all = 0;
    uint32_t last = 0;
    for (uint32_t lane = 0; lane < kWarpSize; lane++) {
        const uint32_t blocks = uint32_t(warpBroadcast(own, lane));
        before += lane < laneInWarp() ? blocks : 0;
        all += blocks;
        last = blocks > 0 ? lane : last;
    }
    if (warpBallot(posts && own == 0) != 0 || all > NIC<provider>::room(queue)) {
        return {0, kRefused};
    }
    if (all == 0) {
        return {0, kOk};
    }
    uint64_t first = 0;
    uint64_t ok = 0;
    if (laneInWarp() == 0) {
        ok = internal::reserve<provider>(channel, all, first) ? 1 : 0;
    }
    first = warpBroadcast(first, 0);
    if (warpBroadcast(ok, 0) != 0) {
        // A completion tells of all work before it: only the last needs one.
        if (posts) {
            internal::writeEntry<provider>(queue, first + before, with(work, laneInWarp() == last ? 0 : kSilent));
        }
        warpSync();
        if (laneInWarp() == 0) {
            ok = internal::publish<provider>(channel, first, all) ? 1 : 0;
        }
        ok = warpBroadcast(ok, 0);
    }
    return {first + all, ok != 0 ? kOk : internal::statusOf(queue)};
}

}  // namespace mori::nic
