# SPDX-License-Identifier: MIT
"""`mori bench` with `--device gpu`: the memory is of GPUs, the yardstick the driver's memcpy.

`cases` says what io and shmem measure and what was expected of it, `moves` and `shmem_suite` how, `copies` the raw
limit; `initiated` is puts that kernels post. Of ep, `ep_cases` says what is measured, `ep_rank` how, and `ep_nccl` is
NCCL beside it.
"""
