// SPDX-License-Identifier: MIT

// Package gpu has what kernels of this PE's GPU know and use of symmetric memory.
//
//   - Side makes the State of kernels (native/include/mori/shmem/state.hpp), with a table of how
//     each PE is reached, and finds the reports of kernels that gave up.
//   - Module is a module of the user or of Triton that has been filled with the State.
//   - queueSide is the queue to PEs that loads and stores do not reach. A host thread serves it
//     through core/proxy, and executes the atomics that kernels of other PEs request.
//   - nicSide is a NIC to whose queues kernels post by themselves (core/gpunic).
//   - Kernels has the calls of users.
package gpu
