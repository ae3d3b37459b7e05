// SPDX-License-Identifier: MIT

// Package heap has the memory that is symmetric: each PE has a block of the same size, and an
// address in it means the same offset on all PEs.
//
//   - Maker makes a Block together with the other PEs, maps their parts, and grows it.
//   - part and mappedPart are this PE's part of a block and another PE's part: a segment in host
//     memory, an allocation of a GPU, or chunks behind reserved addresses of a GPU.
//   - Heap finds the block of an address.
//   - Allocator has the collective calls: Malloc, Calloc, Free.
package heap
