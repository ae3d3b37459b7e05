// SPDX-License-Identifier: MIT

package call

import (
	"errors"
	"fmt"
	"sync"

	"mori/ep/internal/plan"
	"mori/shmem"
)

// A State says whether an op can take a call. An op is broken when its ranks are no longer in the
// same call. Safe for concurrent use.
type State struct {
	timedOut func()

	mu     sync.Mutex
	broken error
	closed bool
}

// NewState returns the state of an op that is open. timedOut is called when the op breaks because a
// wait for other ranks timed out.
func NewState(timedOut func()) *State { return &State{timedOut: timedOut} }

// Break keeps the first error that leaves the ranks out of step, and returns its argument. nil
// changes nothing.
func (s *State) Break(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.broken == nil {
		s.broken = err
		if errors.Is(err, shmem.ErrTimeout) {
			s.timedOut()
		}
	}
	return err
}

// Repair forgets why the op was broken.
func (s *State) Repair() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = nil
}

// Broken returns why the op is broken, or nil.
func (s *State) Broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Usable returns why a call cannot begin, or nil.
func (s *State) Usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("the op is closed: %w", plan.ErrState)
	case s.broken != nil:
		return fmt.Errorf("the op is broken: %w", s.broken)
	}
	return nil
}

// Close marks the op as closed, and reports whether it was open.
func (s *State) Close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := !s.closed
	s.closed = true
	return was
}

// Closed reports whether the op is closed.
func (s *State) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
