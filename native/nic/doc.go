// SPDX-License-Identifier: MIT

// Package nic has the kernels of native/kernels/nic as hosts start them: what they are handed, as
// bytes, and a build of them for the CPU, where a thread stands in for each lane.
//
//	args := nic.Interchange{Queue: view, Mine: mine, Peer: peer, Bytes: 1024, Rounds: 1, Value: 42,
//		Limit: 10 * time.Second}
//	outcome, err := nic.Run(nic.Grid{Blocks: 2, Threads: 8}, args)  // on threads of this process
//	err = outcome.Err()
//
// A GPU runs the same kernels from the module of the queue's family, "nic_mlx5", "nic_bnxt" or
// "nic_ionic": the function of args.Kernel() takes args.Append(nil) as its one argument, aligned to
// 8. There the host gives zeroed memory for the Outcome and reads it. The queue's view belongs in
// the GPU's own memory.
//
// Addresses are numbers, and memory must be there until Run returns: kernels read and write it.
// They end by themselves, since all their waits have limits; what a wait was for is in the outcome.
// A grid of the CPU is small: it is for tests and for machines without a GPU, and has no speed.
package nic
