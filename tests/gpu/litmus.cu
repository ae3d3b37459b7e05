// SPDX-License-Identifier: MIT
// Short tests of the order that fences and atomic accesses promise, one thread a side, as the queues of a NIC and the flags of
// symmetric memory rely on it. nvcc compiles it.
#include "litmus_kernels.hpp"

#include "mori/device/copy.hpp"
#include "mori/device/poll.hpp"

using namespace mori::device;

namespace {

MORI_DEVICE_INLINE uint32_t* word(uint8_t* lines, uint64_t test) { return reinterpret_cast<uint32_t*>(lines + test * kLine); }

MORI_DEVICE_INLINE uint32_t load(const uint32_t* address) { return atomicLoad<Scope::system, Order::relaxed>(address); }
MORI_DEVICE_INLINE void store(uint32_t* address, uint32_t value) { atomicStore<Scope::system, Order::relaxed>(address, value); }

/// The sides begin a test together, then one of them is held up for a while that differs from test to test.
MORI_DEVICE_INLINE bool meet(const Litmus& litmus, uint64_t test) {
    uint32_t* const mine = word(litmus.meet, litmus.side);
    const uint32_t* const other = word(litmus.meet, 1 - litmus.side);
    store(mine, uint32_t(test + 1));
    if (!pollUntil(litmus.limit, [&] { return load(other) > test; })) {
        atomicAdd<Scope::system, Order::relaxed>(litmus.gaveUp, uint64_t(1));
        return false;
    }
    const uint64_t late = (test * 2654435761u >> 7) % 64;
    for (uint64_t i = 0; i < (test % 2 == litmus.side ? late : 0); i++) {
        load(mine);
    }
    return true;
}

MORI_DEVICE_INLINE void storeData(const Litmus& litmus, uint64_t test) {
    uint8_t* const data = litmus.data + test * kLine;
    const uint32_t value = uint32_t(test + 1);
    for (uint32_t i = 0; i < kData / 4; i++) {
        storeOnce(data + i * 16, Chunk{{value, value, value, value}});
    }
}

MORI_DEVICE_INLINE uint32_t stale(const Litmus& litmus, uint64_t test) {
    uint32_t old = 0;
    for (uint32_t i = 0; i < kData; i++) {  // the last word first: stores in order would hide it
        old += load(word(litmus.data, test) + (kData - 1 - i)) != uint32_t(test + 1);
    }
    return old;
}

MORI_DEVICE_INLINE void tell(How how, uint32_t* flag) {
    if (how == How::release) {
        atomicStore<Scope::system, Order::release>(flag, 1u);
        return;
    }
    if (how == How::fence) {
        fence<Scope::system>();
    }
    store(flag, 1);
}

MORI_DEVICE_INLINE uint32_t look(How how, const uint32_t* flag) {
    if (how == How::release) {
        return atomicLoad<Scope::system, Order::acquire>(flag);
    }
    const uint32_t seen = load(flag);
    if (how == How::fence) {
        fence<Scope::system>();
    }
    return seen;
}

}  // namespace

/// Message passing: side 0 stores 64 bytes and then a flag; side 1 that sees the flag must see the bytes.
extern "C" MORI_DEVICE_KERNEL(32) void message_passing(const Litmus litmus) {
    for (uint64_t test = 0; test < litmus.tests && meet(litmus, test); test++) {
        uint32_t* const flag = word(litmus.flags, test);
        if (litmus.side == 0) {
            storeData(litmus, test);
            tell(litmus.how, flag);
            continue;
        }
        Seen seen{};
        for (int looks = 0; looks < 4000 && seen.flag == 0; looks++) {
            seen.flag = look(litmus.how, flag);
        }
        seen.stale = seen.flag != 0 ? stale(litmus, test) : 0;
        litmus.seen[test] = seen;
    }
}

/// Store buffering: each side stores its word and then loads the other's. With an atomic operation on one word between them, as where
/// doorbells are rung for others, at least one must see the other. Fences that acquire and release do not promise it.
extern "C" MORI_DEVICE_KERNEL(32) void store_buffering(const Litmus litmus) {
    for (uint64_t test = 0; test < litmus.tests && meet(litmus, test); test++) {
        uint32_t* const words[2] = {word(litmus.data, test), word(litmus.data, test) + 8};
        store(words[litmus.side], 1);
        if (litmus.how == How::modify) {
            atomicAdd<Scope::system, Order::acqRel>(word(litmus.flags, test), 1u);
        } else if (litmus.how == How::fence) {
            fence<Scope::system>();
        }
        litmus.seen[test].flag = load(words[1 - litmus.side]);
    }
}

/// The way of a work entry to a host that plays the NIC: a thread of block 0 stores 64 bytes and releases a flag to its own GPU; block 1,
/// which acquires it, stores the flag that the host looks at. Each thread of a block does every so many tests.
extern "C" MORI_DEVICE_KERNEL(256) void chain(const Litmus litmus) {
    for (uint64_t test = threadInBlock(); test < litmus.tests; test += blockSize()) {
        uint32_t* const published = word(litmus.chain, test);
        if (blockInGrid() == 0) {
            storeData(litmus, test);
            atomicStore<Scope::device, Order::release>(published, 1u);
            continue;
        }
        if (!pollUntil(litmus.limit, [&] { return atomicLoad<Scope::device, Order::acquire>(published) != 0; })) {
            atomicAdd<Scope::system, Order::relaxed>(litmus.gaveUp, uint64_t(1));
            return;
        }
        tell(litmus.how, word(litmus.flags, test));
    }
}
