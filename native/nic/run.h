/* SPDX-License-Identifier: MIT */
/* The kernels of native/kernels/nic, on threads. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MORI_NIC_OK = 0, MORI_NIC_NO_KERNEL = 1, MORI_NIC_ARGS = 2 };

/* Runs the kernel of that name and returns when all its threads have ended. The arguments have no need to be aligned; their outcome is
 * not looked at: it goes to the bytes at ``outcome``. The caller has checked the grid. */
int mori_nic_run(const char* kernel, uint32_t blocks, uint32_t threads, const void* args, uint64_t bytes, void* outcome);

#ifdef __cplusplus
}
#endif
