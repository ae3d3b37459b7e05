// SPDX-License-Identifier: MIT

// Package access reads and writes the memory that PEs share: this PE's, and that of other PEs that
// is mapped here.
//
//   - Memory is the interface: copies, strided copies, atomics, clearing.
//   - Host uses loads and stores of the CPU.
//   - GPU uses copies by the driver, and a kernel for atomics.
//
// No other package of shmem accesses a heap by address, except the fast paths of package shmem for
// mapped host memory.
package access
