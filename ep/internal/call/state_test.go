// SPDX-License-Identifier: MIT

package call

import (
	"errors"
	"fmt"
	"testing"

	"mori/ep/internal/plan"
	"mori/shmem"
)

// The first error that breaks an op stays until Repair. Only a timeout is noted.
func TestStateKeepsTheFirstError(t *testing.T) {
	timeouts := 0
	s := NewState(func() { timeouts++ })
	if err := errors.Join(s.Break(nil), s.Broken(), s.Usable()); err != nil {
		t.Fatal(err)
	}
	late, other := fmt.Errorf("late: %w", shmem.ErrTimeout), errors.New("other")
	for _, err := range []error{late, other, late} {
		if got := s.Break(err); got != err {
			t.Errorf("Break(%v) returned %v", err, got)
		}
		if s.Broken() != late || !errors.Is(s.Usable(), shmem.ErrTimeout) {
			t.Errorf("the op is broken by %v, usable %v", s.Broken(), s.Usable())
		}
	}
	if s.Repair(); s.Broken() != nil || s.Usable() != nil {
		t.Errorf("after Repair: %v, %v", s.Broken(), s.Usable())
	}
	if _ = s.Break(other); timeouts != 1 {
		t.Errorf("%d timeouts were noted, want 1", timeouts)
	}
	if was := s.Close(); !was || s.Close() || !s.Closed() || !errors.Is(s.Usable(), plan.ErrState) {
		t.Errorf("a closed op is usable: %v", s.Usable())
	}
}
