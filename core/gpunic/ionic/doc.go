// SPDX-License-Identifier: MIT

// Package ionic has the formats of the queues of AMD's Pensando NICs, as bytes: entries, doorbells
// and completions. Kernels write them by themselves with mori/nic/ionic.hpp; here is what tests and
// the emulated NIC (core/gpunic/emu) read and compare. Nothing of it has met a NIC, and there is no
// way yet to make a queue on one.
//
//	entry.Put(ring[index*ionic.EntryBytes:], ionic.Version2) // an Entry, at its place in the ring
//	bell := ionic.Bell{Queue: number, Index: index + 1}.Value()
//	cqe := ionic.ParseCQE(completions[i*ionic.CQEBytes:])
//
// Entries have 64 bytes. NICs speak one of two versions of the formats, which differ in opcodes and
// in where atomics have their memory. Numbers are big-endian but for the index of an entry. Names
// and places are those of rdma-core, providers/ionic/ionic_fw_types.h; how they are used is in
// ionic_verbs.c and ionic_queue.h beside it.
//
// Slices of an Entry that was parsed point into what it was parsed from. Errors wrap [ErrFormat].
package ionic
