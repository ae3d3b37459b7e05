// SPDX-License-Identifier: MIT
// The NIC kernels of all vendors for the emulated GPU. Their modules have the same kernel names, so
// each kernel asks its queue which vendor's it is.
#include "mori/nic/bodies.hpp"

using namespace mori::nic;

namespace {

template <class Args>
using Body = void (*)(const Args&);

template <class Args>
void run(const Args& args, Body<Args> mlx5, Body<Args> bnxt, Body<Args> ionic) {
    switch (Provider(args.queue->provider)) {
        case Provider::bnxt:
            return bnxt(args);
        case Provider::ionic:
            return ionic(args);
        default:
            return mlx5(args);
    }
}

}  // namespace

#define OF_EACH(kernel) kernels::kernel<Provider::mlx5>, kernels::kernel<Provider::bnxt>, kernels::kernel<Provider::ionic>

extern "C" MORI_DEVICE_KERNEL(mori::nic::kMostThreads) void mori_nic_interchange(const InterchangeArgs args) { run(args, OF_EACH(interchangeKernel)); }
extern "C" MORI_DEVICE_KERNEL(mori::nic::kMostThreads) void mori_nic_verify(const VerifyArgs args) { kernels::verifyKernel(args); }
extern "C" MORI_DEVICE_KERNEL(mori::nic::kMostThreads) void mori_nic_ping_pong(const PingPongArgs args) { run(args, OF_EACH(pingPongKernel)); }
extern "C" MORI_DEVICE_KERNEL(mori::nic::kMostThreads) void mori_nic_post(const PostArgs args) { run(args, OF_EACH(postKernel)); }
