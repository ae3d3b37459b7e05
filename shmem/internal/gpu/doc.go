// SPDX-License-Identifier: MIT

// Package gpu provides symmetric memory to the kernels of this PE's GPU.
//
//   - Side creates the State of kernels (native/include/mori/shmem/state.hpp), with a table of how
//     each PE is reached, and reads the reports of kernels that timed out.
//   - Module is a module of the user or of Triton whose State has been filled in.
//   - queueSide is the queue to PEs that loads and stores do not reach. A host thread serves it
//     through core/proxy and executes the atomics that kernels of other PEs request.
//   - nicSide is a NIC whose queues kernels post to directly (core/gpunic).
//   - Kernels has the public calls.
package gpu
