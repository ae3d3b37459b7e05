// SPDX-License-Identifier: MIT

// Package heap manages symmetric memory: each PE has a block of the same size, and an address in it
// corresponds to the same offset on all PEs.
//
//   - Maker creates a Block together with the other PEs, maps their parts, and grows it.
//   - part is this PE's part of a block, mappedPart another PE's: a segment in host memory, a GPU
//     allocation, or chunks of GPU memory in a reserved address range.
//   - Heap finds the block of an address.
//   - Allocator has the collective calls: Malloc, Calloc, Free.
package heap
