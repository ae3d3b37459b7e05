/* SPDX-License-Identifier: MIT */
/* Kernels of native/kernels/proxy, on threads. Each returns when all threads have ended. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the threads of a put or add found. */
struct mori_proxy_outcome {
    uint64_t nanoseconds, failed;
    uint32_t status, reserved;
};

void mori_proxy_run_put(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t each, uint64_t local,
                        uint64_t bytes, uint64_t count, struct mori_proxy_outcome* outcome);
void mori_proxy_run_store(uint32_t blocks, uint32_t threads, uint64_t there, uint32_t each, uint64_t local, uint64_t bytes,
                          uint64_t count, struct mori_proxy_outcome* outcome);
void mori_proxy_run_add(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t region, uint64_t offset,
                        uint64_t count, uint32_t* seen, struct mori_proxy_outcome* outcome);
/* side is the kernels' argument, of whose outcome out takes the place: 32 bytes. */
void mori_proxy_run_interchange(uint32_t threads, int send, const void* side, void* out);

/* Sizes and offsets of what kernels and hosts share, in the order that core/proxy's test has them. Returns how many. */
int mori_proxy_layout(uint64_t* numbers, int room);

#ifdef __cplusplus
}
#endif
