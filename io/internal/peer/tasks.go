// SPDX-License-Identifier: MIT

package peer

import (
	"context"
	"sync"
)

// tasks runs the goroutines of one registration: replays, probes, beats and the sender of tags.
type tasks struct {
	ctx  context.Context // done when the registration ends
	stop context.CancelFunc

	mu      sync.Mutex
	closed  error // the reason; nil while registered
	running sync.WaitGroup
}

func (s *tasks) init() { s.ctx, s.stop = context.WithCancel(context.Background()) }

// spawn runs f in a goroutine that wait waits for. It reports false after refuse.
func (s *tasks) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return false
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		f()
	}()
	return true
}

// refuse makes spawn start no further goroutine. The first reason is kept.
func (s *tasks) refuse(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == nil {
		s.closed = reason
	}
}

// reason returns why tasks are refused, nil while they are accepted.
func (s *tasks) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// wait waits for the goroutines. Call it after refuse.
func (s *tasks) wait() { s.running.Wait() }
