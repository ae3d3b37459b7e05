// SPDX-License-Identifier: MIT

// Package topology tells what is in this host: CPUs, NUMA nodes, network and RDMA devices, GPUs. Scan is pure over a file
// system, so it is tested on recorded trees; it opens no device and needs no privilege.
package topology
