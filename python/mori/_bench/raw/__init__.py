# SPDX-License-Identifier: MIT
"""The raw yardsticks: what a machine does without mori, one module for each means of moving bytes.

* process_vm: process_vm_readv and process_vm_writev between processes of one host
* tcp: plain blocking sockets on loopback
* perftest: ib_write_bw and its siblings on an RDMA device
* driver: the memcpy of a GPU's driver
* nccl: all_to_all by torch.distributed
* openshmem: the installed OpenSHMEM library, in processes of its own

memcpy, atomic instructions and a barrier of flags on symmetric memory are in pybind/bench.c.
"""
