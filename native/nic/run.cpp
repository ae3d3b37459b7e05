// SPDX-License-Identifier: MIT
// The kernels' own source, compiled for the CPU.
#include "run.h"

#include <string.h>

#include "../kernels/nic/mlx5.cpp"

namespace {

using namespace mori::nic;

template <class Args>
int run(void (*kernel)(Args), uint32_t blocks, uint32_t threads, const void* bytes, uint64_t count, void* told) {
    Args args;
    if (count != sizeof(args)) {
        return MORI_NIC_ARGS;
    }
    memcpy(&args, bytes, sizeof(args));
    Outcome outcome{};
    args.outcome = &outcome;
    mori::device::cpu::launch(blocks, threads, [&] { kernel(args); });
    memcpy(told, &outcome, sizeof(outcome));
    return MORI_NIC_OK;
}

}  // namespace

int mori_nic_run(const char* kernel, uint32_t blocks, uint32_t threads, const void* args, uint64_t bytes, void* outcome) {
    if (strcmp(kernel, "mori_nic_interchange") == 0) {
        return run(mori_nic_interchange, blocks, threads, args, bytes, outcome);
    }
    if (strcmp(kernel, "mori_nic_verify") == 0) {
        return run(mori_nic_verify, blocks, threads, args, bytes, outcome);
    }
    if (strcmp(kernel, "mori_nic_ping_pong") == 0) {
        return run(mori_nic_ping_pong, blocks, threads, args, bytes, outcome);
    }
    if (strcmp(kernel, "mori_nic_post") == 0) {
        return run(mori_nic_post, blocks, threads, args, bytes, outcome);
    }
    return MORI_NIC_NO_KERNEL;
}
