// SPDX-License-Identifier: MIT

package shmem

import "mori/shmem/internal/peers"

// The errors of this package, beside those of the layers below.
var (
	ErrClosed      = peers.ErrClosed
	ErrInvalid     = peers.ErrInvalid
	ErrNotSym      = peers.ErrNotSym   // an address outside of symmetric memory
	ErrNoMemory    = peers.ErrNoMemory // the heap is full, or the machine
	ErrMismatch    = peers.ErrMismatch // the text names each PE's call
	ErrTimeout     = peers.ErrTimeout
	ErrUnreachable = peers.ErrUnreachable // over the network; names the PE
	ErrElsewhere   = peers.ErrElsewhere   // the call failed on another PE; says why
)
