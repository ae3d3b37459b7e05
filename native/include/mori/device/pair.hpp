// SPDX-License-Identifier: MIT
/// Two words that are written side by side.
#pragma once

#include "mori/device/atomic.hpp"
#include "mori/device/copy.hpp"

namespace mori::device {

/// Stores two words of 8 bytes, each of them whole, at an address aligned to 16, for the system. It is relaxed: a fence goes before
/// it. Where the GPU can, they leave by one write over the bus; whoever reads them may still see one without the other.
MORI_DEVICE_INLINE void storePair(uint64_t* address, uint64_t first, uint64_t second) {
#if defined(MORI_DEVICE_CUDA)
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(internal::globalAddress(address)), "l"(first),
                 "l"(second)
                 : "memory");
#else
    atomicStore<Scope::system, Order::relaxed>(&address[1], second);
    atomicStore<Scope::system, Order::relaxed>(&address[0], first);
#endif
}

}  // namespace mori::device
