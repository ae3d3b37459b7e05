// SPDX-License-Identifier: MIT
// A barrier of all PEs on a stream: what precedes it on each PE's stream is seen by what follows it on all of them.
#include "mori/shmem/device.hpp"

/// One block.
extern "C" MORI_DEVICE_KERNEL(32) void mori_shmem_barrier() { mori::shmem::ShmemBarrierAllBlock(); }
