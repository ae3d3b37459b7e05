// SPDX-License-Identifier: MIT

// Package nic has the host side of the kernels of native/kernels/nic: their arguments, as bytes,
// and a CPU build of them, in which a thread stands in for each lane.
//
//	args := nic.Interchange{Queue: view, Mine: mine, Peer: peer, Bytes: 1024, Rounds: 1, Value: 42,
//		Limit: 10 * time.Second}
//	outcome, err := nic.Run(nic.Grid{Blocks: 2, Threads: 8}, args)  // on threads of this process
//	err = outcome.Err()
//
// A GPU runs the same kernels from the module of the queue's family, "nic_mlx5", "nic_bnxt" or
// "nic_ionic". The function args.Kernel() takes args.Append(nil) as its only argument, aligned to
// 8. The host then provides zeroed memory for the Outcome and reads it. The queue's view should be
// in the GPU's own memory.
//
// Addresses are numbers. The memory must stay valid until Run returns, because kernels read and
// write it. All waits of the kernels have limits, so they always end; the outcome says what a wait
// was for. A CPU grid is small and slow: it is for tests and for machines without a GPU.
package nic
