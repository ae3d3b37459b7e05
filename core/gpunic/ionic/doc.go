// SPDX-License-Identifier: MIT

// Package ionic encodes and decodes the queue formats of AMD's Pensando NICs: entries, doorbells
// and completions. Kernels write these formats themselves with mori/nic/ionic.hpp. Tests and the
// emulated NIC (core/gpunic/emu) use this package. It has not been tested on a NIC, and mori cannot
// create a queue on one yet.
//
//	entry.Put(ring[index*ionic.EntryBytes:], ionic.Version2) // an Entry, at its place in the ring
//	bell := ionic.Bell{Queue: number, Index: index + 1}.Value()
//	cqe := ionic.ParseCQE(completions[i*ionic.CQEBytes:])
//
// Entries have 64 bytes. A NIC uses one of two versions of the formats, which differ in the opcodes
// and in where atomics have their memory. Numbers are big-endian, except the index of an entry.
// Names and offsets are those of rdma-core, providers/ionic/ionic_fw_types.h. The files
// ionic_verbs.c and ionic_queue.h beside it show their use.
//
// Slices of a parsed Entry point into the bytes that it was parsed from. Errors wrap [ErrFormat].
package ionic
