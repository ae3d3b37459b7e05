// SPDX-License-Identifier: MIT
/// The kernels of native/kernels/nic, for every family of NICs. A module defines them for its family by MORI_NIC_KERNELS.
#pragma once

#include "mori/nic/device.hpp"
#include "mori/nic/kernels.hpp"

namespace mori::nic {
namespace kernels {

using namespace device;

/// A part of so many bytes.
struct Share {
    uint64_t begin, bytes;
};

MORI_DEVICE_INLINE Share shareOfBlock(uint64_t all) {
    const uint64_t each = all / gridBlocks();
    const uint64_t rest = all % gridBlocks();  // the first ones take one more
    const uint64_t index = blockInGrid();
    return {index * each + (index < rest ? index : rest), each + (index < rest ? 1 : 0)};
}

/// One thread tells how it went for those it worked with.
MORI_DEVICE_INLINE void tell(Outcome* outcome, uint64_t status, uint64_t done, uint64_t took) {
    if (status != kOk) {
        atomicCompareSwap<Scope::system, Order::relaxed>(&outcome->status, kOk, status);
    }
    atomicAdd<Scope::system, Order::relaxed>(&outcome->done, done);
    uint64_t most = atomicLoad<Scope::system, Order::relaxed>(&outcome->nanoseconds);
    while (most < took) {
        const uint64_t seen = atomicCompareSwap<Scope::system, Order::relaxed>(&outcome->nanoseconds, most, took);
        if (seen == most) {
            break;
        }
        most = seen;
    }
}

template <class Expected>
MORI_DEVICE_INLINE void countWrong(Outcome* outcome, const uint8_t* memory, Share share, Expected expected) {
    uint64_t wrong = 0;
    for (uint64_t i = threadInBlock(); i < share.bytes; i += blockSize()) {
        // Bytes that a NIC wrote, maybe where this thread has looked before.
        wrong += atomicLoad<Scope::system, Order::relaxed>(memory + share.begin + i) != expected(share.begin + i);
    }
    if (wrong != 0) {
        atomicAdd<Scope::system, Order::relaxed>(&outcome->wrong, wrong);
    }
}

// ---- ping pong ----

/// A payload's byte: every byte of it changes from round to round.
MORI_DEVICE_INLINE uint8_t payload(uint64_t round, uint64_t at) { return uint8_t(round * 7 + at * 31 + 1); }

/// Fills and posts the payload, and behind it the flag.
template <Provider kNic>
MORI_DEVICE_INLINE uint64_t put(const PingPongArgs& args, const Channel& channel, uint64_t round) {
    uint8_t* const mine = reinterpret_cast<uint8_t*>(args.mine.addr);
    for (uint64_t i = threadInBlock(); i < args.bytes; i += blockSize()) {
        mine[i] = payload(round, i);
    }
    const Posted sent = post<kNic, Group::block>(channel, with(write(args.peer, 0, args.mine, 0, args.bytes), kSilent));
    if (sent.status != kOk) {
        return sent.status;
    }
    const Work flag = args.atomic != 0 ? fetchAdd(args.peer, args.flag, args.mine, args.flag, 1)
                                       : writeValue(args.peer, args.flag, round);
    return quiet<kNic, Group::block>(channel, post<kNic, Group::block>(channel, flag));
}

/// Waits for the peer's flag. All threads know whether it came, and then see the payload.
MORI_DEVICE_INLINE bool await(const PingPongArgs& args, const Channel& channel, uint64_t round) {
    MORI_DEVICE_SHARED(uint64_t, came);
    blockSync();
    if (threadInBlock() == 0) {
        const uint64_t* const flag = reinterpret_cast<const uint64_t*>(args.inbox.addr + args.flag);
        uint64_t seen = 0;
        came = pollUntil(args.limit, [&] {
            seen = atomicLoad<Scope::system, Order::acquire>(flag);
            return seen >= round;
        });
        if (came == 0) {
            reportWait(channel.report, flag, round, seen, channel.rank, channel.peer);
        }
    }
    blockSync();
    return came != 0;
}

// ---- lists of work ----

/// What a poster of a list does with each of its pieces: posts it, and waits when the window is full.
template <Provider kNic, Group group>
struct Poster {
    const PostArgs& args;
    const Channel& channel;
    Posted last{};
    uint64_t done = 0;
    uint32_t open = 0;

    MORI_DEVICE_INLINE bool add(const Posted& posted, uint64_t pieces) {
        last = posted;
        if (last.status == kOk && args.window != 0 && ++open >= args.window) {
            finish();
            open = 0;
        }
        done += last.status == kOk ? pieces : 0;
        return last.status == kOk;
    }

    MORI_DEVICE_INLINE void finish() { last.status = quiet<kNic, group>(channel, last); }
};

template <Provider kNic, Group group>
MORI_DEVICE_INLINE void postShare(const PostArgs& args, const Channel& channel, uint64_t index, uint64_t posters, bool tells) {
    const uint64_t start = nanoseconds();
    Poster<kNic, group> poster{args, channel};
    for (uint64_t i = index; i < args.count; i += posters) {
        if (!poster.add(post<kNic, group>(channel, args.work[i]), 1)) {
            break;
        }
    }
    poster.finish();
    if (tells) {
        tell(args.outcome, poster.last.status, poster.done, nanoseconds() - start);
    }
}

/// Lanes behind the list's end post work that is none.
template <Provider kNic>
MORI_DEVICE_INLINE void postLanesShare(const PostArgs& args, const Channel& channel) {
    const uint64_t start = nanoseconds();
    Poster<kNic, Group::warp> poster{args, channel};
    for (uint64_t i = warpInGrid() * uint64_t(kWarpSize); i < args.count; i += gridWarps() * uint64_t(kWarpSize)) {
        const uint64_t left = args.count - i;
        const Work work = laneInWarp() < left ? args.work[i + laneInWarp()] : Work{};
        if (!poster.add(postLanes<kNic>(channel, work), left < kWarpSize ? left : kWarpSize)) {
            break;
        }
    }
    poster.finish();
    if (laneInWarp() == 0) {
        tell(args.outcome, poster.last.status, poster.done, nanoseconds() - start);
    }
}


template <Provider kNic>
MORI_DEVICE_INLINE void interchangeKernel(const InterchangeArgs& args) {
    const Channel channel{args.queue, args.limit, &args.outcome->report, args.rank, 1 - args.rank};
    const Share share = shareOfBlock(args.bytes);
    uint8_t* const mine = reinterpret_cast<uint8_t*>(args.mine.addr) + share.begin;
    const uint64_t start = nanoseconds();
    uint64_t done = 0;
    uint64_t status = kOk;
    for (uint64_t left = args.rounds; left > 0 && status == kOk; left--) {
        for (uint64_t i = threadInBlock(); i < share.bytes; i += blockSize()) {
            mine[i] = uint8_t(args.value - (left - 1));
        }
        const Posted put = post<kNic, Group::block>(channel, write(args.peer, share.begin, args.mine, share.begin, share.bytes));
        status = quiet<kNic, Group::block>(channel, put);
        done += status == kOk ? 1 : 0;
    }
    if (threadInBlock() == 0) {
        tell(args.outcome, status, done, nanoseconds() - start);
    }
}

MORI_DEVICE_INLINE void verifyKernel(const VerifyArgs& args) {
    countWrong(args.outcome, args.memory, shareOfBlock(args.bytes), [&](uint64_t) { return uint8_t(args.value); });
}

template <Provider kNic>
MORI_DEVICE_INLINE void pingPongKernel(const PingPongArgs& args) {
    const uint32_t rank = 1 - args.begins;
    const Channel channel{args.queue, args.limit, &args.outcome->report, rank, 1 - rank};
    const uint8_t* const inbox = reinterpret_cast<const uint8_t*>(args.inbox.addr);
    const uint64_t start = nanoseconds();
    uint64_t done = 0;
    uint64_t status = kOk;
    for (uint64_t round = 1; round <= args.rounds && status == kOk; round++) {
        if (args.begins != 0) {
            status = put<kNic>(args, channel, round);
        }
        if (status != kOk || !await(args, channel, round)) {
            status = status != kOk ? status : kTimedOut;
            break;
        }
        countWrong(args.outcome, inbox, {0, args.bytes}, [&](uint64_t at) { return payload(round, at); });
        if (args.begins == 0) {
            status = put<kNic>(args, channel, round);
        }
        done += status == kOk ? 1 : 0;
    }
    if (threadInBlock() == 0) {
        tell(args.outcome, status, done, nanoseconds() - start);
    }
}

template <Provider kNic>
MORI_DEVICE_INLINE void postKernel(const PostArgs& args) {
    const Channel channel{args.queue, args.limit, &args.outcome->report, 0, 1};
    switch (args.posters) {
        case Posters::thread:
            postShare<kNic, Group::thread>(args, channel, uint64_t(blockInGrid()) * blockSize() + threadInBlock(),
                                     uint64_t(gridBlocks()) * blockSize(), true);
            break;
        case Posters::warp:
            postShare<kNic, Group::warp>(args, channel, warpInGrid(), gridWarps(), laneInWarp() == 0);
            break;
        case Posters::block:
            postShare<kNic, Group::block>(args, channel, blockInGrid(), gridBlocks(), threadInBlock() == 0);
            break;
        case Posters::lanes:
            postLanesShare<kNic>(args, channel);
            break;
    }
}

}  // namespace kernels
}  // namespace mori::nic

#define MORI_NIC_KERNEL(name, Args, body) \
    extern "C" MORI_DEVICE_KERNEL(mori::nic::kMostThreads) void name(const mori::nic::Args args) { mori::nic::kernels::body(args); }

/// The kernels of one family.
#define MORI_NIC_KERNELS(provider) \
    MORI_NIC_KERNEL(mori_nic_interchange, InterchangeArgs, interchangeKernel<provider>) \
    MORI_NIC_KERNEL(mori_nic_verify, VerifyArgs, verifyKernel) \
    MORI_NIC_KERNEL(mori_nic_ping_pong, PingPongArgs, pingPongKernel<provider>) \
    MORI_NIC_KERNEL(mori_nic_post, PostArgs, postKernel<provider>)
