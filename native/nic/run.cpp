// SPDX-License-Identifier: MIT
// The kernels' own source, compiled for the CPU, for each family of NICs.
#include "run.h"

#include <string.h>

#include "mori/nic/bodies.hpp"

namespace {

using namespace mori::nic;

template <class Args, class Kernel>
int run(Kernel kernel, uint32_t blocks, uint32_t threads, Args args, void* told) {
    Outcome outcome{};
    args.outcome = &outcome;
    mori::device::cpu::launch(blocks, threads, [&] { kernel(args); });
    memcpy(told, &outcome, sizeof(outcome));
    return MORI_NIC_OK;
}

template <Provider provider>
struct Family {
    static void interchange(const InterchangeArgs& args) { kernels::interchangeKernel<provider>(args); }
    static void pingPong(const PingPongArgs& args) { kernels::pingPongKernel<provider>(args); }
    static void post(const PostArgs& args) { kernels::postKernel<provider>(args); }
};

/// Of the family that the queue is of.
template <class Args>
auto ofFamily(const Queue* queue, void (*mlx5)(const Args&), void (*bnxt)(const Args&), void (*ionic)(const Args&)) {
    switch (Provider(queue->provider)) {
        case Provider::bnxt:
            return bnxt;
        case Provider::ionic:
            return ionic;
        default:
            return mlx5;
    }
}

template <class Args>
bool read(const void* bytes, uint64_t count, Args& args) {
    if (count == sizeof(args)) {
        memcpy(&args, bytes, sizeof(args));
    }
    return count == sizeof(args);
}

using Mlx5 = Family<Provider::mlx5>;
using Bnxt = Family<Provider::bnxt>;
using Ionic = Family<Provider::ionic>;

}  // namespace

int mori_nic_run(const char* kernel, uint32_t blocks, uint32_t threads, const void* args, uint64_t bytes, void* outcome) {
    if (strcmp(kernel, "mori_nic_interchange") == 0) {
        InterchangeArgs a;
        return !read(args, bytes, a) ? MORI_NIC_ARGS
                                     : run(ofFamily(a.queue, Mlx5::interchange, Bnxt::interchange, Ionic::interchange), blocks, threads, a, outcome);
    }
    if (strcmp(kernel, "mori_nic_verify") == 0) {
        VerifyArgs a;
        return !read(args, bytes, a) ? MORI_NIC_ARGS : run(kernels::verifyKernel, blocks, threads, a, outcome);
    }
    if (strcmp(kernel, "mori_nic_ping_pong") == 0) {
        PingPongArgs a;
        return !read(args, bytes, a) ? MORI_NIC_ARGS
                                     : run(ofFamily(a.queue, Mlx5::pingPong, Bnxt::pingPong, Ionic::pingPong), blocks, threads, a, outcome);
    }
    if (strcmp(kernel, "mori_nic_post") == 0) {
        PostArgs a;
        return !read(args, bytes, a) ? MORI_NIC_ARGS : run(ofFamily(a.queue, Mlx5::post, Bnxt::post, Ionic::post), blocks, threads, a, outcome);
    }
    return MORI_NIC_NO_KERNEL;
}
