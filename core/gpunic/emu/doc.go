// SPDX-License-Identifier: MIT

// Package emu emulates a NIC of the mlx5 family in software, for tests and for machines without
// such a NIC. It implements the bytes of the commands, rings and doorbells of core/gpunic/mlx5. So
// code that drives it drives a real NIC unchanged. It is stricter than a NIC: a mistake that a NIC
// would silently get wrong ends with an error and is recorded (Violations).
//
//	nic, err := emu.New(emu.Options{Name: "emu0", Wire: "unix"})
//	dev, err := mlx5.Open(nic) // dev.Close closes the NIC
//
// # Parts
//
// A firmware owns the objects and executes commands. A queue pair has three parts: a ring, which
// finds and reads work entries; a requester, which executes them; and a responder, which executes
// the peer's requests. A window holds the pending entries, a retryTimer decides when to retransmit
// packets, and a writeBuffer holds writes with relaxed order. A family implements a vendor's queue
// format. Packages memory and wire do not depend on queue pairs.
//
// # How it works
//
// A NIC is one thread. It polls doorbells, which are words of memory here, reads work entries,
// moves bytes and writes completions. When idle, it naps. Queue pairs of one NIC (Wire "loop") or
// of two processes ("unix", "tcp") exchange packets with sequence numbers. Packets may be lost, and
// are then retransmitted, as are packets that the peer has no room for. A NIC's GID contains its
// address.
//
// Chaos makes the NIC do, at random with a seed, what real NICs may do: read entries early or late,
// delay completions, place bytes out of order, lose packets. Profile returns the mix for a seed.
//
// The NIC accesses memory that was registered with Umem. That is this process's memory, where an
// unmapped page fails the work and does not crash the process. Or it is memory, such as a GPU's,
// that AddMemory has described.
//
// With Options.Family it reads and writes the queues of bnxt or ionic NICs, in the formats of
// core/gpunic/bnxt and core/gpunic/ionic.
//
// It does not support event queues and arming, shared receive queues, memory windows, signatures or
// datagrams, and it is not fast.
package emu
