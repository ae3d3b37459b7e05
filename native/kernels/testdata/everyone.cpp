// SPDX-License-Identifier: MIT
// What shmem's tests have as a user's module: every PE does all that there is with every PE, whatever reaches it.
#include "mori/shmem/device.hpp"

using namespace mori::shmem;
using mori::device::blockSize;
using mori::device::blockSync;
using mori::device::threadInBlock;
using mori::device::warpInBlock;

namespace {

constexpr uint64_t kMost = 16;  ///< PEs

/// Where things are in symmetric memory; each part has a line or more for each PE.
struct Places {
    char* at;
    uint64_t bytes;  ///< that each PE puts
    uint64_t* signal(int pe) const { return reinterpret_cast<uint64_t*>(at + 128 * uint64_t(pe)); }
    uint64_t* value(int pe) const { return reinterpret_cast<uint64_t*>(at + 128 * (kMost + uint64_t(pe))); }
    uint64_t* sum() const { return reinterpret_cast<uint64_t*>(at + 128 * 2 * kMost); }
    uint32_t* ticket() const { return reinterpret_cast<uint32_t*>(at + 128 * (2 * kMost + 1)); }
    uint8_t* small() const { return reinterpret_cast<uint8_t*>(at + 128 * (2 * kMost + 2)); }
    char* source() const { return at + 128 * (2 * kMost + 4); }
    char* from(int pe) const { return source() + bytes * uint64_t(1 + pe); }
    char* back() const { return source() + bytes * (1 + kMost); }
};

MORI_DEVICE_INLINE char byteOf(int pe, uint64_t turn, uint64_t i) { return char(uint64_t(pe) * 37 + turn * 101 + i * 11 + i / 256); }

/// Threads count what is not as it should be; one of them has the sum in the end.
MORI_DEVICE_INLINE void require(uint64_t* wrong, bool ok) {
    if (!ok) {
        mori::device::atomicAdd<mori::device::Scope::system, mori::device::Order::relaxed>(wrong, uint64_t(1));
    }
}

MORI_DEVICE_INLINE uint64_t bad(const char* at, int pe, uint64_t turn, uint64_t bytes) {
    uint64_t n = 0;
    for (uint64_t i = threadInBlock(); i < bytes; i += blockSize()) {
        n += static_cast<const volatile char*>(at)[i] != byteOf(pe, turn, i);
    }
    return n;
}

/// A third of the bytes by each kind of group, and a signal that comes after all of them.
MORI_DEVICE_INLINE void puts(const Places& p, uint64_t turn, int pe) {
    const int me = ShmemMyPe();
    const uint64_t third = p.bytes / 3;
    if (warpInBlock() == 0) {
        ShmemPutMemNbiWarp(p.from(me), p.source(), third, pe);
    }
    if (threadInBlock() == 0) {
        ShmemPutMemNbiThread(p.from(me) + third, p.source() + third, third, pe);
        ShmemPutUint64ImmNbiThread(p.value(me), turn * 1000 + uint64_t(pe), pe);
        ShmemFenceThread(pe);
    }
    blockSync();
    ShmemPutMemNbiSignalBlock(p.from(me) + 2 * third, p.source() + 2 * third, p.bytes - 2 * third, p.signal(me), turn,
                              AMO_SIGNAL_SET, pe);
}

MORI_DEVICE_INLINE void atomics(const Places& p, uint64_t turn, uint64_t* wrong) {
    const int me = ShmemMyPe(), n = ShmemNPes();
    if (threadInBlock() == 0) {
        for (int pe = 0; pe < n; pe++) {
            ShmemUint64AtomicAddThread(p.sum(), uint64_t(me) + 1, pe);
            ShmemUint8AtomicAddThread(p.small() + me, 3, pe);
            const uint32_t old = ShmemUint32AtomicFetchAddThread(p.ticket(), 1, pe);
            require(wrong, old >= (turn - 1) * uint64_t(n) && old < turn * uint64_t(n));
        }
        ShmemQuietThread();
    }
    ShmemBarrierAllBlock();
    if (threadInBlock() == 0) {
        require(wrong, *static_cast<volatile uint64_t*>(p.sum()) == turn * uint64_t(n) * uint64_t(n + 1) / 2);
        require(wrong, *static_cast<volatile uint32_t*>(p.ticket()) == turn * uint64_t(n));
        for (int pe = 0; pe < n; pe++) {
            require(wrong, static_cast<volatile uint8_t*>(p.small())[pe] == uint8_t(3 * turn));
        }
    }
}

}  // namespace

/// One block of each PE. at is symmetric memory, zeros before the first turn, which is 1. wrong is mapped host memory.
extern "C" MORI_DEVICE_KERNEL(256) void mori_test_everyone(char* at, uint64_t bytes, uint64_t first, uint64_t turns,
                                                           uint64_t* wrong) {
    const Places p{at, bytes};
    const int me = ShmemMyPe(), n = ShmemNPes();
    for (uint64_t turn = first; turn < first + turns; turn++) {
        for (uint64_t i = threadInBlock(); i < bytes; i += blockSize()) {
            p.source()[i] = byteOf(me, turn, i);
        }
        blockSync();
        for (int k = 1; k <= n; k++) {
            puts(p, turn, (me + k) % n);
        }
        for (int pe = 0; pe < n; pe++) {
            if (threadInBlock() == 0) {
                ShmemUint64WaitUntilEquals(p.signal(pe), turn);
                require(wrong, *static_cast<volatile uint64_t*>(p.value(pe)) == turn * 1000 + uint64_t(me));
            }
            blockSync();
            require(wrong, bad(p.from(pe), pe, turn, bytes) == 0);
            ShmemGetMemBlock(p.back(), p.source(), bytes, pe);
            require(wrong, bad(p.back(), pe, turn, bytes) == 0);
            blockSync();
        }
        atomics(p, turn, wrong);
        ShmemBarrierAllBlock();  // all have looked
    }
}
