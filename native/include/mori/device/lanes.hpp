// SPDX-License-Identifier: MIT
/// What lanes of a warp cannot do at once.
#pragma once

#include "mori/device/vendor.hpp"

namespace mori::device {

/// Each calling thread does it by itself, and those of a warp one after the other: where lanes run in step, as AMD's do, or are
/// brought together again by the compiler, a lane that waits for what another would do next would wait forever.
template <class Action>
MORI_DEVICE_INLINE void eachLane(Action action) {
#if defined(MORI_DEVICE_CPU)
    action();
#else
    for (bool done = false; !done;) {
#if defined(MORI_DEVICE_HIP)
        const uint32_t turn = uint32_t(__builtin_amdgcn_readfirstlane(int(laneInWarp())));
#else
        uint32_t here = 0;  // lanes that are not here have their turn when they come
        asm volatile("activemask.b32 %0;" : "=r"(here));
        const uint32_t turn = lowestBit(here);
#endif
        if (laneInWarp() == turn) {
            action();
            done = true;
        }
    }
#endif
}

}  // namespace mori::device
