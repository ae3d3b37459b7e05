// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"sync"
	"sync/atomic"

	"mori/core/memory"
	"mori/io/internal/watch"
)

// A Status is the state of one transfer.
//
//	INIT ──submit──▶ IN_PROGRESS ──▶ SUCCESS | an error, which Update does not overwrite
//
// The code is one word. The Python extension polls it and parks on it as a futex without entering
// Go, so every change of it goes through set, which wakes.
type Status struct {
	word memory.ParkWord
	of   atomic.Pointer[Transfer] // while it has not ended

	mu   sync.Mutex
	msg  string        // guarded by mu
	done chan struct{} // guarded by mu; made by a Go waiter, closed when no longer in progress

	watches []watching // guarded by mu; notified when no longer in progress
}

// NewStatus returns a status in state INIT.
func NewStatus() *Status {
	s := new(Status)
	s.word.Value.Store(uint32(Init))
	return s
}

// newStarted returns a status that nobody has seen yet, of a transfer that begins.
func newStarted() *Status {
	s := new(Status)
	s.word.Value.Store(uint32(InProgress))
	return s
}

// NewFailed returns a status that already failed.
func NewFailed(code Code, msg string) *Status {
	s := NewStatus()
	s.Update(code, msg)
	return s
}

// Word is the code's memory and its count of futex waiters, for the extension. It lives as long as
// s.
func (s *Status) Word() *memory.ParkWord { return &s.word }

// Code is the present state.
func (s *Status) Code() Code { return Code(s.word.Value.Load()) }

// Message is the text that came with the state.
func (s *Status) Message() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.msg
}

// Update sets code and text and wakes waiters, unless s has failed already: the first error stays.
func (s *Status) Update(code Code, msg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Code().Failed() {
		return
	}
	s.msg = msg
	s.set(code)
}

// SetCode sets the code whatever it was.
func (s *Status) SetCode(code Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(code)
}

// SetMessage sets the text whatever it was.
func (s *Status) SetMessage(msg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.msg = msg
}

// set stores the code and wakes waiters. It needs s.mu held.
func (s *Status) set(code Code) {
	s.word.Value.Store(uint32(code))
	if code == InProgress {
		return
	}
	s.word.Wake()
	if s.done != nil {
		close(s.done)
		s.done = nil
	}
	for _, w := range s.watches {
		w.by.Add(w.token)
	}
	s.watches = nil
}

// Wait parks until the code is not IN_PROGRESS or ctx is done, and returns the code. INIT returns
// at once.
func (s *Status) Wait(ctx context.Context) Code {
	for {
		s.mu.Lock()
		if c := s.Code(); c != InProgress {
			s.mu.Unlock()
			return c
		}
		if s.done == nil {
			s.done = make(chan struct{})
		}
		done := s.done
		s.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return s.Code()
		}
	}
}

// A watching is the watcher to notify when a status leaves IN_PROGRESS.
type watching struct {
	by    *watch.Watcher
	token uint64
}

// Watch makes w take token when s is not in progress any more, which may be now.
func (s *Status) Watch(w *watch.Watcher, token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Code() == InProgress {
		s.watches = append(s.watches, watching{w, token})
		return
	}
	w.Add(token)
}

// Cancel ends the transfer, unless it has ended. When it returns nil no byte of it can land any
// more, neither here nor at the peer. ctx bounds the wait; on its error, or when the peer does not
// confirm, no byte can land here any more, but the peer may still write what it had received. A
// transfer that had moved all its bytes stays a success.
func (s *Status) Cancel(ctx context.Context) error {
	t := s.of.Load()
	if t == nil {
		return nil
	}
	return t.cancel(ctx)
}
