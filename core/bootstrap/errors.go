// SPDX-License-Identifier: MIT

package bootstrap

import "fmt"

// A RankError names the rank that broke the group. It wraps ErrRankDied or ErrRankLeft.
type RankError struct {
	Rank  int
	Left  bool  // it closed its group while others went on
	Cause error // how that was noticed; may be nil
}

// Error says which rank, and how it was noticed.
func (e *RankError) Error() string {
	switch {
	case e.Left:
		return fmt.Sprintf("rank %d has left the group", e.Rank)
	case e.Cause == nil:
		return fmt.Sprintf("rank %d has died", e.Rank)
	}
	return fmt.Sprintf("rank %d has died: %v", e.Rank, e.Cause)
}

// Unwrap returns the sentinel.
func (e *RankError) Unwrap() error {
	if e.Left {
		return ErrRankLeft
	}
	return ErrRankDied
}
