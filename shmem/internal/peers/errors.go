// SPDX-License-Identifier: MIT

package peers

import "errors"

// What errors of package shmem wrap, beside those of the layers below.
var (
	ErrClosed      = errors.New("shmem is finalized")
	ErrInvalid     = errors.New("invalid argument")
	ErrNotSym      = errors.New("not symmetric memory")         // an address outside of what Malloc gave
	ErrNoMemory    = errors.New("out of symmetric memory")      // the heap is full, or the machine
	ErrMismatch    = errors.New("the PEs made different calls") // names them
	ErrTimeout     = errors.New("timed out")
	ErrUnreachable = errors.New("the PE cannot be reached")      // by the network; names it
	ErrElsewhere   = errors.New("the call failed on another PE") // what failed here because it failed there; says why
)
