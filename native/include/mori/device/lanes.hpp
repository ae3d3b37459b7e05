// SPDX-License-Identifier: MIT
/// What lanes of a warp cannot do at once.
#pragma once

#include "mori/device/vendor.hpp"

namespace mori::device {

/// Each calling thread does it by itself. On AMD, whose lanes run in step, one after the other: a lane that waits for what
/// another lane of its warp would do next would wait forever. NVIDIA's lanes go on by themselves.
template <class Action>
MORI_DEVICE_INLINE void eachLane(Action action) {
#if defined(MORI_DEVICE_HIP)
    for (bool done = false; !done;) {
        if (laneInWarp() == uint32_t(__builtin_amdgcn_readfirstlane(int(laneInWarp())))) {
            action();
            done = true;
        }
    }
#else
    action();
#endif
}

}  // namespace mori::device
