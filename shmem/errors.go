// SPDX-License-Identifier: MIT

package shmem

import "mori/shmem/internal/peers"

// What errors of this package wrap, beside those of the layers below.
var (
	ErrClosed      = peers.ErrClosed
	ErrInvalid     = peers.ErrInvalid
	ErrNotSym      = peers.ErrNotSym   // an address outside of what Malloc gave
	ErrNoMemory    = peers.ErrNoMemory // the heap is full, or the machine
	ErrMismatch    = peers.ErrMismatch // names the calls of the PEs
	ErrTimeout     = peers.ErrTimeout
	ErrUnreachable = peers.ErrUnreachable // by the network; names the PE
	ErrElsewhere   = peers.ErrElsewhere   // what failed here because it failed at another PE; says why
)
