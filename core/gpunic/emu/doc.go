// SPDX-License-Identifier: MIT

// Package emu is a NIC of the mlx5 family in software, for tests and for machines without one. It
// understands the commands, rings and doorbells of core/gpunic/mlx5 by their bytes, so that what
// drives it drives a real NIC unchanged, and it is stricter than one: what a NIC would get wrong
// silently it ends with an error, and notes (Violations).
//
//	nic, err := emu.New(emu.Options{Name: "emu0", Wire: "unix"})
//	dev, err := mlx5.Open(nic) // dev.Close closes the NIC
//
// # Parts
//
// A firmware owns the objects and carries out commands. A queue pair has a ring, which finds and
// reads work entries, a requester, which carries them out, and a responder, which does what the
// peer asks for. A window has the entries under way, a retryTimer says when packets are sent again,
// a writeBuffer holds writes with relaxed order. A family is how the queues of a vendor are
// written. Packages memory and wire know nothing of queue pairs.
//
// # How it works
//
// A NIC is one thread that looks at doorbells, which are words of memory here, reads work entries,
// moves bytes, and writes completions. It naps when nothing happens. Packets with sequence numbers
// go between queue pairs, of one NIC (Wire "loop") or of two processes ("unix", "tcp"); they may be
// lost, and are then sent again, as are those that the peer has no room for. A NIC's GID says where
// it is.
//
// Chaos has the NIC do, at random but by a seed, what real ones may do: read entries early or late,
// delay completions, place bytes out of order, lose packets. Profile gives the mix for a seed.
//
// Memory is what was made known by Umem: this process's own, where a page that is gone is an error
// of the work and not the end of the process, or memory that AddMemory says how to reach, such as a
// GPU's.
//
// Options.Family has it read and write the queues of bnxt or ionic NICs, whose formats are those of
// core/gpunic/bnxt and core/gpunic/ionic.
//
// What it does not do: event queues and arming, shared receive queues, memory windows, signatures,
// datagrams, speed.
package emu
