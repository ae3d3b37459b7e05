/* SPDX-License-Identifier: MIT */
/* Kernels of native/kernels/proxy, on threads. Each returns when all threads have ended. Outcomes are structs of
 * mori/proxy/kernels.hpp. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void mori_proxy_run_put(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t each, uint64_t local,
                        uint64_t bytes, uint64_t count, void* outcome);
void mori_proxy_run_store(uint32_t blocks, uint32_t threads, uint64_t there, uint32_t each, uint64_t local, uint64_t bytes,
                          uint64_t count, void* outcome);
void mori_proxy_run_add(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t region, uint64_t offset,
                        uint64_t count, uint32_t* seen, void* outcome);
/* side is the kernels' argument. Its outcome is not used: outcome takes its place. */
void mori_proxy_run_interchange(uint32_t threads, int send, const void* side, void* outcome);

#ifdef __cplusplus
}
#endif
