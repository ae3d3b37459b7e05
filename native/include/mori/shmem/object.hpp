// SPDX-License-Identifier: MIT
/// How kernels name symmetric memory other than by an address.
#pragma once

#include "mori/device/vendor.hpp"

namespace mori::shmem {

/// A block of symmetric memory, by this PE's address.
struct SymmetricObject {
    void* local;
    uint64_t bytes;

    template <class T>
    MORI_DEVICE_INLINE T* at(uint64_t element) const {
        return static_cast<T*>(local) + element;
    }
};

}  // namespace mori::shmem
