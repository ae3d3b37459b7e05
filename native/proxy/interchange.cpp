// SPDX-License-Identifier: MIT
// The kernels of interchange.cpp, on threads.
#include "../kernels/proxy/interchange.cpp"

#include "proxy.h"

static_assert(sizeof(mori_proxy_side) == sizeof(Side) && sizeof(mori_proxy_rounds) == sizeof(Outcome));

static Side sideOf(const mori_proxy_side* s) {
    return {reinterpret_cast<const mori::proxy::Queue*>(s->queue), s->local, s->bytes, reinterpret_cast<uint64_t*>(s->words),
            s->rounds, s->value, s->peer, reinterpret_cast<Outcome*>(s->outcome)};
}

void mori_proxy_run_send(uint32_t threads, const mori_proxy_side* side) {
    mori::device::cpu::launch(1, threads, [=] { mori_proxy_interchange_send(sideOf(side)); });
}

void mori_proxy_run_receive(uint32_t threads, const mori_proxy_side* side) {
    mori::device::cpu::launch(1, threads, [=] { mori_proxy_interchange_receive(sideOf(side)); });
}
