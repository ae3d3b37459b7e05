# SPDX-License-Identifier: MIT
"""`mori bench io` and `mori bench shmem` with `--device gpu`: the memory is of GPUs, the yardstick the driver's memcpy.

`cases` says what is measured and what was expected of it, `moves` and `shmem_suite` how, `copies` the raw limit.
"""
