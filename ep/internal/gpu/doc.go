// SPDX-License-Identifier: MIT

// Package gpu dispatches and combines on a GPU. Kernels take all steps by themselves
// (native/kernels/ep). A call queues one kernel on the current stream and returns at once: without
// a wait, without an allocation.
//
//   - Side is an op on a GPU: it opens, closes, excludes ranks, and answers queries.
//   - calls has the calls: it checks the arguments and launches the kernels (calls.go, combine.go,
//     standard.go). args.go has the arguments in the layout of native/include/mori/ep/op.hpp.
//   - kernels has the loaded kernels of one device, and the grids that fit it (grid.go).
//   - buffers is the memory of an op: symmetric, of this GPU alone, and the notice.
//   - notice is host memory to which kernels report; faults makes errors of it.
//   - health decides whether the op is broken. excluded has the ranks that are left out.
//   - streams has the streams that calls were queued on, and waits for them.
//   - watcher aborts kernels when a rank dies.
//   - hosts is what ranks on other hosts need: memory for records and rows (hosts.go, records.go).
package gpu
