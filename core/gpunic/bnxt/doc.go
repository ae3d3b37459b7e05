// SPDX-License-Identifier: MIT

// Package bnxt encodes and decodes the queue formats of Broadcom's NetXtreme-E NICs that keep a
// table of packet numbers in the host's memory (Thor 2 and later): entries, rows of the table,
// doorbells and completions. Kernels write these formats themselves with mori/nic/bnxt.hpp. Tests
// and the emulated NIC (core/gpunic/emu) use this package. It has not been tested on a NIC, and
// mori cannot create a queue on one yet.
//
//	n := entry.Put(ring[index*bnxt.EntryBytes:])                   // an Entry in its slot
//	row := bnxt.Row{Index: index, Start: psn, Next: psn + packets} // which packets it takes
//	bell := bnxt.Bell{Queue: number, Index: index + 1}.Value()     // the value of the register
//	cqe := bnxt.ParseCQE(completions[i*bnxt.CQEBytes:])
//
// Entries use the static mode: each occupies 128 bytes, and doorbells and completions count
// entries. Numbers are little-endian. Names and offsets are those of rdma-core,
// providers/bnxt_re/bnxt_re-hsi.h, and of Linux, drivers/infiniband/hw/bnxt_re/roce_hsi.h. The
// files db.c and verbs.c beside the former show their use.
//
// Slices of a parsed Entry point into the bytes that it was parsed from. Errors wrap [ErrFormat].
package bnxt
