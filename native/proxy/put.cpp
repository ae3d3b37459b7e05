// SPDX-License-Identifier: MIT
// The kernels of put.cpp, on threads.
#include "../kernels/proxy/put.cpp"

#include "proxy.h"

void mori_proxy_run_put(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t each, uint64_t local,
                        uint64_t bytes, uint64_t count, void* outcome) {
    mori::device::cpu::launch(blocks, threads, [=] {
        mori_proxy_put(reinterpret_cast<const mori::proxy::Queue*>(queue), pe, each, local, bytes, count,
                       static_cast<PutOutcome*>(outcome));
    });
}

void mori_proxy_run_store(uint32_t blocks, uint32_t threads, uint64_t there, uint32_t each, uint64_t local, uint64_t bytes,
                          uint64_t count, void* outcome) {
    mori::device::cpu::launch(blocks, threads, [=] {
        mori_proxy_store(there, each, local, bytes, count, static_cast<PutOutcome*>(outcome));
    });
}

void mori_proxy_run_add(uint32_t blocks, uint32_t threads, uint64_t queue, uint32_t pe, uint32_t region, uint64_t offset,
                        uint64_t count, uint32_t* seen, void* outcome) {
    mori::device::cpu::launch(blocks, threads, [=] {
        mori_proxy_add(reinterpret_cast<const mori::proxy::Queue*>(queue), pe, region, offset, count, seen,
                       static_cast<PutOutcome*>(outcome));
    });
}
