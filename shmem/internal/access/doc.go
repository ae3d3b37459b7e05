// SPDX-License-Identifier: MIT

// Package access reads and writes the memory that PEs share, this PE's and what is mapped here of
// other PEs.
//
//   - Memory is the interface: copies, strided copies, atomics, zeros.
//   - Host does it with loads and stores of the CPU.
//   - GPU does it with copies of the driver, and with a kernel for atomics.
//
// Nothing else in shmem touches a heap by its address, except the fast paths of package shmem for
// mapped host memory.
package access
