# SPDX-License-Identifier: MIT
"""A kernel on one GPU writes to another GPU's memory through a NIC that it drives itself, step by step.

    python examples/gpu_interchange.py                               the emulated NIC, on the first GPU or the CPU
    python examples/gpu_interchange.py --device proxy:tcp --gpu cpu  a host thread posts for the kernel, over TCP
    python examples/gpu_interchange.py --gpu cuda:0,cuda:1 --processes 2 --rounds 1000

This is ``mori demo interchange``. Its steps are in python/mori/_demo/interchange.py. They call
these parts, which docs/design/gpu-initiated.md explains:

* core/interchange in Go, with the emulated NIC core/gpunic/emu and the proxy core/proxy
* the kernels native/kernels/nic and native/kernels/proxy
"""

import sys

from mori._demo.interchange import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
