// SPDX-License-Identifier: MIT
// The kernels of put.cpp, on threads.
#include "../kernels/proxy/put.cpp"

#include <stddef.h>

#include "proxy.h"

static_assert(sizeof(mori_proxy_outcome) == sizeof(Outcome));

void mori_proxy_run_put(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t each, uint64_t local,
                        uint64_t bytes, uint64_t count, mori_proxy_outcome* outcome) {
    mori::device::cpu::launch(blocks, threads, [=] {
        mori_proxy_put(reinterpret_cast<const mori::proxy::Queue*>(queue), pe, each, local, bytes, count,
                       reinterpret_cast<Outcome*>(outcome));
    });
}

void mori_proxy_run_store(uint32_t blocks, uint32_t threads, uint64_t there, uint32_t each, uint64_t local, uint64_t bytes,
                          uint64_t count, mori_proxy_outcome* outcome) {
    mori::device::cpu::launch(blocks, threads, [=] {
        mori_proxy_store(there, each, local, bytes, count, reinterpret_cast<Outcome*>(outcome));
    });
}

void mori_proxy_run_add(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t region, uint64_t offset,
                        uint64_t count, uint32_t* seen, mori_proxy_outcome* outcome) {
    mori::device::cpu::launch(blocks, threads, [=] {
        mori_proxy_add(reinterpret_cast<const mori::proxy::Queue*>(queue), pe, region, offset, count, seen,
                       reinterpret_cast<Outcome*>(outcome));
    });
}

int mori_proxy_layout(uint64_t* numbers, int room) {
    using namespace mori::proxy;
    const uint64_t all[] = {
        sizeof(Command), sizeof(Detail), sizeof(Result), sizeof(Board), sizeof(State), sizeof(Queue), kQueueVersion,
        offsetof(Board, report), offsetof(Queue, ring), offsetof(Queue, state), offsetof(Queue, waitLimit),
        offsetof(Detail, local), offsetof(Detail, remote), offsetof(Detail, bytes), offsetof(Detail, value),
        offsetof(Detail, compare), offsetof(Detail, signal), kPlaceBits, kPeBits, kBytesBits, kHasDetail,
        uint64_t(1) << kLapShift, kTrouble, kClosed, uint64_t(Kind::put), uint64_t(Kind::fence), uint64_t(Atomic::add),
        uint64_t(Atomic::bitOr), uint64_t(Atomic::bitAnd), uint64_t(Atomic::bitXor), uint64_t(Atomic::read),
        uint64_t(Atomic::set), uint64_t(Atomic::compareSwap),
        offsetof(mori::device::WaitReport, expected), offsetof(mori::device::WaitReport, seen),
        offsetof(mori::device::WaitReport, peer), offsetof(mori::device::WaitReport, count),
        offsetof(mori::device::WaitReport, ready),
    };
    const int n = int(sizeof(all) / sizeof(all[0]));
    for (int i = 0; i < n && i < room; i++) {
        numbers[i] = all[i];
    }
    return n;
}
