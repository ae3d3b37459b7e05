// SPDX-License-Identifier: MIT
/// Waits that end. A wait has a limit in nanoseconds; who gives up leaves a record of what it waited for.
#pragma once

#include "mori/device/atomic.hpp"
#include "mori/device/report.hpp"

#if defined(MORI_DEVICE_CPU)
#include <time.h>
#endif

namespace mori::device {

/// Nanoseconds of a clock that all threads of the GPU share. It may tick as coarsely as once in a microsecond.
MORI_DEVICE_INLINE uint64_t nanoseconds() {
#if defined(MORI_DEVICE_CUDA)
    uint64_t now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#elif defined(MORI_DEVICE_HIP)
    return __builtin_amdgcn_s_memrealtime() * 10;  // 100 MHz on gfx90a and gfx942
#else
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
#endif
}

/// Nanoseconds between two questions whether a wait is to stop. The word that answers may lie in host memory, where a load
/// takes a microsecond and uses the link; a wait that is over sooner never asks.
constexpr uint64_t kStopEvery = 1'000'000;

/// Looks until ready() is true, limit nanoseconds have passed, or stop() is true, and returns whether ready() was. It orders
/// what ready() orders: with a relaxed load inside, no other memory.
template <class Ready, class Stop>
MORI_DEVICE_INLINE bool pollUntil(uint64_t limit, Ready ready, Stop stop) {
    if (ready()) {
        return true;
    }
    const uint64_t start = nanoseconds();
    uint64_t waited = 0, ask = kStopEvery;
    while ((waited = nanoseconds() - start) < limit) {
        if (waited >= ask) {
            if (stop()) {
                break;
            }
            ask = waited + kStopEvery;
        }
        // A look at the clock costs as much as a few looks at the word.
        for (int look = 0; look < 16; look++) {
            if (ready()) {
                return true;
            }
        }
#if defined(MORI_DEVICE_CPU)
        cpu::rest(nanoseconds() - start);
#endif
    }
    return ready();
}

/// The same without a stop.
template <class Ready>
MORI_DEVICE_INLINE bool pollUntil(uint64_t limit, Ready ready) {
    return pollUntil(limit, ready, [] { return false; });
}

/// Fills in the record, if this is the first wait that gave up.
MORI_DEVICE_INLINE void reportWait(WaitReport* report, const void* address, uint64_t expected, uint64_t seen,
                                   uint32_t rank, uint32_t peer) {
    if (atomicAdd<Scope::system, Order::relaxed>(&report->count, 1u) != 0) {
        return;
    }
    report->address = uint64_t(address);
    report->expected = expected;
    report->seen = seen;
    report->rank = rank;
    report->peer = peer;
    atomicStore<Scope::system, Order::release>(&report->ready, 1u);
}

}  // namespace mori::device
