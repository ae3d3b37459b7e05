// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
)

// The errors of this package.
var (
	ErrRankDied = errors.New("the rank has died")           // a RankError
	ErrRankLeft = errors.New("the rank has left")           // a RankError
	ErrClosed   = errors.New("the group is closed")         // by this rank
	ErrMismatch = errors.New("the ranks disagree")          // on their number, their order of calls, or their ranks
	ErrBusy     = errors.New("another call is in progress") // a rank makes one collective call at a time; the group still works
	ErrBadID    = errors.New("not a unique id")

	errStranger = errors.New("the answering process is not in this group")
)

// A RankError names the rank that broke the group. It wraps ErrRankDied or ErrRankLeft, and the
// cause.
type RankError struct {
	Rank  int
	Left  bool  // it closed its group while others continued
	Cause error // how that was detected; may be nil
}

// Error says which rank, and how it was noticed.
func (e *RankError) Error() string {
	switch {
	case e.Left:
		return fmt.Sprintf("rank %d has left (Close)", e.Rank)
	case e.Cause == nil:
		return fmt.Sprintf("rank %d has died", e.Rank)
	}
	return fmt.Sprintf("rank %d has died: %v", e.Rank, e.Cause)
}

// Unwrap returns the sentinel and the cause.
func (e *RankError) Unwrap() []error {
	sentinel := ErrRankDied
	if e.Left {
		sentinel = ErrRankLeft
	}
	if e.Cause == nil {
		return []error{sentinel}
	}
	return []error{sentinel, e.Cause}
}

// A failure is the cause that breaks a group, as ranks send it to each other.
type failure struct {
	kind failureKind
	rank int // of died and left
	text string
}

type failureKind uint8

const (
	failDied failureKind = 1 + iota
	failLeft
	failMismatch
	failLate
	failOther
	failEnd
)

const maxFailureText = 4096

// err returns the failure as an error for this rank's callers.
func (f failure) err() error {
	switch f.kind {
	case failDied:
		if f.text == "" {
			return &RankError{Rank: f.rank}
		}
		return &RankError{Rank: f.rank, Cause: errors.New(f.text)}
	case failLeft:
		return &RankError{Rank: f.rank, Left: true}
	case failMismatch:
		return fmt.Errorf("%s: %w", f.text, ErrMismatch)
	case failLate:
		return fmt.Errorf("%s: %w", f.text, context.DeadlineExceeded)
	}
	return errors.New(f.text)
}
