// SPDX-License-Identifier: MIT
// Many small puts by the threads of a grid through one queue of a proxy: what its tests and mori's benchmarks post.
#include "mori/proxy/device.hpp"
#include "mori/proxy/kernels.hpp"

namespace {

using mori::device::Order;
using mori::device::Scope;
using mori::proxy::PutOutcome;

void MORI_DEVICE_INLINE tell(PutOutcome* outcome, uint32_t status) {
    if (status != 0) {
        mori::device::atomicAdd<Scope::system, Order::relaxed>(&outcome->failed, uint64_t(1));
        mori::device::atomicStore<Scope::system, Order::relaxed>(&outcome->status, status);
    }
}

/// Keeps the time of the thread that took longest.
void MORI_DEVICE_INLINE longest(PutOutcome* outcome, uint64_t took) {
    uint64_t seen = 0;
    while (took > (seen = mori::device::atomicLoad<Scope::system, Order::relaxed>(&outcome->nanoseconds)) &&
           mori::device::atomicCompareSwap<Scope::system, Order::relaxed>(&outcome->nanoseconds, seen, took) != seen) {
    }
}

}  // namespace

/// Command k of count puts the bytes at local + k * bytes to offset k * bytes of the PE's region 0. Threads take them in turns. With
/// each, a thread waits for every command of its own; without, for all of them at the end.
extern "C" MORI_DEVICE_KERNEL(1024) void mori_proxy_put(const mori::proxy::Queue* queue, uint32_t pe, uint32_t each, uint64_t local, uint64_t bytes, uint64_t count, PutOutcome* outcome) {
    using namespace mori::proxy;
    const Queue q = *queue;
    const uint64_t threads = uint64_t(mori::device::gridBlocks()) * mori::device::blockSize();
    const uint64_t me = uint64_t(mori::device::blockInGrid()) * mori::device::blockSize() + mori::device::threadInBlock();
    const uint64_t start = mori::device::nanoseconds();
    uint64_t last = 0;
    for (uint64_t k = me; k < count; k += threads) {
        last = put<Group::thread>(q, pe, k * bytes, local + k * bytes, bytes);
        if (last == 0 || each != 0) {
            const uint32_t status = wait<Group::thread>(q, last, pe);
            tell(outcome, status);
            if (status != 0) {
                return;
            }
        }
    }
    if (last != 0) {
        tell(outcome, wait<Group::thread>(q, last, pe));
    }
    longest(outcome, mori::device::nanoseconds() - start);
}

/// The same by stores of words of 8 bytes, where the peer's memory is mapped at there: what a proxy is held against. A fence of the whole
/// system ends each put, or all of them.
extern "C" MORI_DEVICE_KERNEL(1024) void mori_proxy_store(uint64_t there, uint32_t each, uint64_t local, uint64_t bytes, uint64_t count, PutOutcome* outcome) {
    const uint64_t threads = uint64_t(mori::device::gridBlocks()) * mori::device::blockSize();
    const uint64_t me = uint64_t(mori::device::blockInGrid()) * mori::device::blockSize() + mori::device::threadInBlock();
    const uint64_t start = mori::device::nanoseconds();
    for (uint64_t k = me; k < count; k += threads) {
        const uint64_t* const from = reinterpret_cast<const uint64_t*>(local + k * bytes);
        uint64_t* const to = reinterpret_cast<uint64_t*>(there + k * bytes);
        for (uint64_t i = 0; i < bytes / 8; i++) {
            mori::device::atomicStore<Scope::system, Order::relaxed>(to + i, from[i]);
        }
        if (each != 0) {
            mori::device::fence<Scope::system>();
        }
    }
    mori::device::fence<Scope::system>();
    longest(outcome, mori::device::nanoseconds() - start);
}

/// Each of count turns, which threads share out, adds one to a word of 8 bytes at the PE's region and counts what was there before
/// in seen[old]: at the end each value has been there once.
extern "C" MORI_DEVICE_KERNEL(1024) void mori_proxy_add(const mori::proxy::Queue* queue, uint32_t pe, uint32_t region, uint64_t offset, uint64_t count, uint32_t* seen, PutOutcome* outcome) {
    using namespace mori::proxy;
    const Queue q = *queue;
    const uint64_t threads = uint64_t(mori::device::gridBlocks()) * mori::device::blockSize();
    const uint64_t me = uint64_t(mori::device::blockInGrid()) * mori::device::blockSize() + mori::device::threadInBlock();
    for (uint64_t k = me; k < count; k += threads) {
        uint64_t old = 0;
        const uint32_t status = fetch(q, pe, offset, Atomic::add, 1, 0, &old, 8, region);
        tell(outcome, status);
        if (status != 0 || old >= count) {
            return;
        }
        mori::device::atomicAdd<Scope::system, Order::relaxed>(&seen[old], 1u);
    }
}
