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

/* A side of the interchange, and what it found. */
struct mori_proxy_side {
    uint64_t queue, local, bytes, words, rounds;
    uint32_t value, peer;
    uint64_t outcome; /* of a mori_proxy_rounds */
};

struct mori_proxy_rounds {
    uint64_t nanoseconds, wrong, rounds;
    uint32_t status, reserved;
};

void mori_proxy_run_put(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t each, uint64_t local,
                        uint64_t bytes, uint64_t count, struct mori_proxy_outcome* outcome);
void mori_proxy_run_add(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t region, uint64_t offset,
                        uint64_t count, uint32_t* seen, struct mori_proxy_outcome* outcome);
void mori_proxy_run_send(uint32_t threads, const struct mori_proxy_side* side);
void mori_proxy_run_receive(uint32_t threads, const struct mori_proxy_side* side);

/* Sizes and offsets of what kernels and hosts share, in the order that core/proxy's test has them. Returns how many. */
int mori_proxy_layout(uint64_t* numbers, int room);

#ifdef __cplusplus
}
#endif
