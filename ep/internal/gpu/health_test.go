// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"
	"testing"

	"mori/core/bootstrap"
)

// Only the death of a rank that is left out is ignored.
func TestExcludedRanksMayDie(t *testing.T) {
	e := &excluded{}
	dead := fmt.Errorf("world: %w", &bootstrap.RankError{Rank: 5, Cause: errors.New("gone")})
	if e.has(dead) {
		t.Error("rank 5 is left out of a new op")
	}
	if first, again := e.add(1<<5|1<<7), e.add(1<<5); first != 1 || again != 2 || e.mask() != 1<<5|1<<7 {
		t.Errorf("exclusions %d and %d of ranks %#b", first, again, e.mask())
	}
	for err, want := range map[error]bool{
		dead: true,
		&bootstrap.RankError{Rank: 6, Cause: errors.New("gone")}:  false,
		&bootstrap.RankError{Rank: -1, Cause: errors.New("gone")}: false,
		&bootstrap.RankError{Rank: 69, Cause: errors.New("gone")}: false,
		errors.New("another error"):                               false,
	} {
		aborted := false
		e.unless(err, func() { aborted = true })
		if e.has(err) != want || aborted == want {
			t.Errorf("%v: left out %v, aborted %v", err, e.has(err), aborted)
		}
	}
}
