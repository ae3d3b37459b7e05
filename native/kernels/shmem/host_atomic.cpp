// SPDX-License-Identifier: MIT
// An atomic operation on a word of a GPU for the host, whose own atomics do not reach there.
#include "mori/shmem/operations.hpp"

using mori::shmem::internal::applyAtomic;

/// One thread does it. The word, of 4 or 8 bytes, is where this GPU reaches it; result is mapped host memory, and gets what was there.
extern "C" MORI_DEVICE_KERNEL(32) void mori_shmem_host_atomic(uint64_t address, uint64_t value, uint64_t compare,
                                                              uint64_t* result, uint32_t op, uint32_t bytes) {
    if (mori::device::threadInBlock() != 0) {
        return;
    }
    uint64_t before = 0;
    if (bytes == 4) {
        before = applyAtomic(reinterpret_cast<uint32_t*>(address), uint32_t(value), uint32_t(compare), op);
    } else {
        before = applyAtomic(reinterpret_cast<uint64_t*>(address), value, compare, op);
    }
    mori::device::atomicStore<mori::device::Scope::system, mori::device::Order::release>(result, before);
}
