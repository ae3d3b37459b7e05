// SPDX-License-Identifier: MIT

// Package bnxt has the formats of the queues of Broadcom's NetXtreme-E NICs that keep a table of
// packet numbers in the host's memory (Thor 2 and later), as bytes: entries, rows of the table,
// doorbells and completions. Kernels write them by themselves with mori/nic/bnxt.hpp; here is what
// tests and the emulated NIC (core/gpunic/emu) read and compare. Nothing of it has met a NIC, and
// there is no way yet to make a queue on one.
//
//	n := entry.Put(ring[index*bnxt.EntryBytes:])                   // an Entry in its slot
//	row := bnxt.Row{Index: index, Start: psn, Next: psn + packets} // which packets it takes
//	bell := bnxt.Bell{Queue: number, Index: index + 1}.Value()     // the value of the register
//	cqe := bnxt.ParseCQE(completions[i*bnxt.CQEBytes:])
//
// Entries are of the static mode: each has a place of 128 bytes, and doorbells and completions
// count entries. Numbers are little-endian. Names and places are those of rdma-core,
// providers/bnxt_re/bnxt_re-hsi.h, and of Linux, drivers/infiniband/hw/bnxt_re/roce_hsi.h; how they
// are used is in db.c and verbs.c beside the former.
//
// Slices of an Entry that was parsed point into what it was parsed from. Errors wrap [ErrFormat].
package bnxt
