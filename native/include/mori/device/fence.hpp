// SPDX-License-Identifier: MIT
/// Fences. A fence orders what this thread did, and saw done, before it against what it does after it, for all threads
/// of the scope. The relaxed twin of a fence is no fence.
#pragma once

#include "mori/device/vendor.hpp"

#if defined(MORI_DEVICE_CPU)
#include <atomic>
#endif

namespace mori::device {

/// Whom an access or a fence is meant for.
enum class Scope {
    block,   ///< threads of this block
    device,  ///< all threads of this GPU
    system,  ///< other GPUs and the host, too
};

namespace internal {
#if defined(MORI_DEVICE_CPU)
/// The thread sanitizer does not know fences, but it knows who modified one word before whom.
inline std::atomic<uint32_t> fenceWord{0};
#endif
}  // namespace internal

/// Acquire and release for the scope.
template <Scope scope>
MORI_DEVICE_INLINE void fence() {
#if defined(MORI_DEVICE_CUDA)
    if constexpr (scope == Scope::block) {
        asm volatile("fence.acq_rel.cta;" ::: "memory");
    } else if constexpr (scope == Scope::device) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    } else {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    }
#elif defined(MORI_DEVICE_HIP)
    if constexpr (scope == Scope::block) {
        __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
    } else if constexpr (scope == Scope::device) {
        __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
    } else {
        __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "");
    }
#else
    internal::fenceWord.fetch_add(1, std::memory_order_acq_rel);
#endif
}

}  // namespace mori::device
