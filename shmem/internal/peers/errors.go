// SPDX-License-Identifier: MIT

package peers

import "errors"

// The errors of this package, beside those of the layers below.
var (
	ErrClosed      = errors.New("shmem is finalized")
	ErrInvalid     = errors.New("invalid argument")
	ErrNotSym      = errors.New("not symmetric memory")         // an address outside of symmetric memory
	ErrNoMemory    = errors.New("out of symmetric memory")      // the heap is full, or the machine
	ErrMismatch    = errors.New("the PEs made different calls") // the text names the calls
	ErrTimeout     = errors.New("timed out")
	ErrUnreachable = errors.New("the PE cannot be reached")      // over the network; names the PE
	ErrElsewhere   = errors.New("the call failed on another PE") // the call failed on another PE; says why
)
