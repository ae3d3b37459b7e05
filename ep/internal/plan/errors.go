// SPDX-License-Identifier: MIT

package plan

import (
	"errors"
	"fmt"
)

// The causes that callers branch on.
var (
	ErrConfig  = errors.New("invalid configuration")
	ErrShape   = errors.New("shape does not fit the configuration")
	ErrMap     = errors.New("routing map does not fit the configuration")
	ErrCounts  = errors.New("published counts are impossible")
	ErrRecvCap = errors.New("more rows than a rank may receive")

	ErrState    = errors.New("invalid in this state")
	ErrMismatch = errors.New("the ranks made different calls")
)

// A CapError names a source that was not admitted and the rank that has no room for its rows. It
// wraps ErrRecvCap.
type CapError struct {
	Source, Dest int
	Rows         int // that Source would send to Dest
	Used         int // rows of the sources that were admitted before it
	Cap          int // rows that a rank may receive
}

// Error returns a message with all numbers.
func (e *CapError) Error() string {
	return fmt.Sprintf("rank %d dispatches %d rows to rank %d, which already receives %d of at most %d: %v",
		e.Source, e.Rows, e.Dest, e.Used, e.Cap, ErrRecvCap)
}

// Unwrap returns ErrRecvCap.
func (e *CapError) Unwrap() error { return ErrRecvCap }
