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
// The code is one word. The Python extension polls it and waits on it as a futex without entering
// Go. So every change of the code goes through set, which wakes the waiters.
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

// newStarted returns a status in state IN_PROGRESS. It needs no wakeup, since nobody has seen the
// status yet.
func newStarted() *Status {
	s := new(Status)
	s.word.Value.Store(uint32(InProgress))
	return s
}

// NewFailed returns a status that has already failed.
func NewFailed(code Code, msg string) *Status {
	s := NewStatus()
	s.Update(code, msg)
	return s
}

// Word returns the memory of the code with its count of futex waiters, for the extension. It is
// valid as long as s.
func (s *Status) Word() *memory.ParkWord { return &s.word }

// Code returns the current state.
func (s *Status) Code() Code { return Code(s.word.Value.Load()) }

// Message returns the text that was set with the state.
func (s *Status) Message() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.msg
}

// Update sets code and text and wakes waiters. It does nothing if s has already failed: the first
// error stays.
func (s *Status) Update(code Code, msg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Code().Failed() {
		return
	}
	s.msg = msg
	s.set(code)
}

// SetCode sets the code unconditionally.
func (s *Status) SetCode(code Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(code)
}

// SetMessage sets the text unconditionally.
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

// Wait blocks until the code is not IN_PROGRESS or ctx is done, and returns the code. It returns
// immediately in state INIT.
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

// Watch makes w receive token when s leaves IN_PROGRESS, or now if it already has.
func (s *Status) Watch(w *watch.Watcher, token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Code() == InProgress {
		s.watches = append(s.watches, watching{w, token})
		return
	}
	w.Add(token)
}

// Cancel ends the transfer, unless it has ended. When it returns nil, the transfer can write no
// more bytes, neither here nor at the peer. ctx bounds the wait. If ctx ends, or the peer does not
// confirm, Cancel returns an error: no byte can be written here any more, but the peer may still
// write bytes that it had received. A transfer that had moved all its bytes remains a success.
func (s *Status) Cancel(ctx context.Context) error {
	t := s.of.Load()
	if t == nil {
		return nil
	}
	return t.cancel(ctx)
}
