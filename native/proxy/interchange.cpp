// SPDX-License-Identifier: MIT
// The kernels of interchange.cpp, on threads.
#include "../kernels/proxy/interchange.cpp"

#include "proxy.h"

void mori_proxy_run_interchange(uint32_t threads, int send, const void* side, void* outcome) {
    InterchangeSide mine = *static_cast<const InterchangeSide*>(side);
    mine.outcome = static_cast<mori::proxy::InterchangeOutcome*>(outcome);
    mori::device::cpu::launch(1, threads, [=] {
        if (send != 0) {
            mori_proxy_interchange_send(mine);
        } else {
            mori_proxy_interchange_receive(mine);
        }
    });
}
