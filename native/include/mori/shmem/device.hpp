// SPDX-License-Identifier: MIT
/// Symmetric memory in kernels: put, get, atomics, signals, waits, order and barriers among PEs, by the names of the
/// GPU variants of OpenSHMEM. Include it in a kernel's source, and have the host run shmem_module_init on the module.
///
/// The suffix tells who calls: Thread, each thread for itself; Warp, all lanes of a warp for one operation; Block, all
/// threads of a block for one. Symmetric memory is named by this PE's address of it, or by an object and an offset, which
/// counts elements in typed calls. qpId picks a queue where the PE is reached by a network.
#pragma once

#include "mori/shmem/move.hpp"
#include "mori/shmem/words.hpp"

namespace mori::shmem {

MORI_DEVICE_INLINE int ShmemMyPe() { return internal::state().myPe; }
MORI_DEVICE_INLINE int ShmemNPes() { return internal::state().nPes; }

/// The address at which pe's copy can be loaded and stored from here; 0 if it cannot.
MORI_DEVICE_INLINE uint64_t ShmemPtrP2p(uint64_t symmetric, int pe) {
    return uint64_t(internal::reach(pe).at(reinterpret_cast<void*>(symmetric)));
}
MORI_DEVICE_INLINE uint64_t ShmemPtrP2p(uint64_t symmetric, int myPe, int pe) {
    return myPe == ShmemMyPe() ? ShmemPtrP2p(symmetric, pe) : 0;
}
MORI_DEVICE_INLINE uint64_t ShmemPtrP2p(SymmetricObject object, uint64_t offset, int pe) {
    return ShmemPtrP2p(uint64_t(object.at<char>(offset)), pe);
}

// ---- order ----

/// All that this thread has put and got is complete: with all PEs, one, or over one queue to it.
MORI_DEVICE_INLINE void ShmemQuietThread() { internal::quiet(-1, -1); }
MORI_DEVICE_INLINE void ShmemQuietThread(int pe) { internal::quiet(pe, -1); }
MORI_DEVICE_INLINE void ShmemQuietThread(int pe, int qpId) { internal::quiet(pe, qpId); }
MORI_DEVICE_INLINE void ShmemQuietThread(int pe, SymmetricObject) { internal::quiet(pe, -1); }

/// What this thread put before is seen before what it puts after.
MORI_DEVICE_INLINE void ShmemFenceThread() { internal::quiet(-1, -1); }
MORI_DEVICE_INLINE void ShmemFenceThread(int pe) { internal::quiet(pe, -1); }
MORI_DEVICE_INLINE void ShmemFenceThread(int pe, int qpId) { internal::quiet(pe, qpId); }
MORI_DEVICE_INLINE void ShmemFenceThread(int pe, SymmetricObject) { internal::quiet(pe, -1); }

/// One thread of each PE calls it. All that the PEs did before is seen by all after.
MORI_DEVICE_INLINE void ShmemBarrierAllThread() { internal::barrierAll<Group::thread>(); }

/// All threads of one block of each PE call it, or of one PE's, and one thread of another's.
MORI_DEVICE_INLINE void ShmemBarrierAllBlock() { internal::barrierAll<Group::block>(); }

/// The barriers without the wait for operations that went through a transport.
MORI_DEVICE_INLINE void ShmemInternalBarrierThread() { internal::meetAllPes<Group::thread>(); }
MORI_DEVICE_INLINE void ShmemInternalBarrierBlock() {
    internal::meet<Group::block>();
    internal::meetAllPes<Group::block>();
}

}  // namespace mori::shmem
