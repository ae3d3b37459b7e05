// SPDX-License-Identifier: MIT

package io

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
	of   atomic.Pointer[transfer] // while it has not ended

	mu   sync.Mutex
	msg  string        // guarded by mu
	done chan struct{} // guarded by mu; made by a Go waiter, closed when no longer in progress

	watches []watching // guarded by mu; notified when no longer in progress
}

// NewStatus returns a status in state INIT.
func NewStatus() *Status {
	s := new(Status)
	s.word.Value.Store(uint32(CodeInit))
	return s
}

// startedStatus returns a status that nobody has seen yet, of a transfer that begins.
func startedStatus() *Status {
	s := new(Status)
	s.word.Value.Store(uint32(CodeInProgress))
	return s
}

// failedStatus returns a status that already failed.
func failedStatus(code StatusCode, msg string) *Status {
	s := NewStatus()
	s.Update(code, msg)
	return s
}

// Word is the code's memory and its count of futex waiters, for the extension. It lives as long as
// s.
func (s *Status) Word() *memory.ParkWord { return &s.word }

// Code is the present state.
func (s *Status) Code() StatusCode { return StatusCode(s.word.Value.Load()) }

// Message is the text that came with the state.
func (s *Status) Message() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.msg
}

// Update sets code and text and wakes waiters, unless s has failed already: the first error stays.
func (s *Status) Update(code StatusCode, msg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Code().Failed() {
		return
	}
	s.msg = msg
	s.set(code)
}

// SetCode sets the code whatever it was.
func (s *Status) SetCode(code StatusCode) {
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
func (s *Status) set(code StatusCode) {
	s.word.Value.Store(uint32(code))
	if code == CodeInProgress {
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
func (s *Status) Wait(ctx context.Context) StatusCode {
	for {
		s.mu.Lock()
		if c := s.Code(); c != CodeInProgress {
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
func (s *Status) Watch(w *Watcher, token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Code() == CodeInProgress {
		s.watches = append(s.watches, watching{w, token})
		return
	}
	w.Add(token)
}

// A Watcher is notified of statuses that leave IN_PROGRESS, for an event loop: see package watch.
type Watcher = watch.Watcher

// NewWatcher returns a Watcher with an open descriptor.
func NewWatcher() (*Watcher, error) { return watch.New() }

// A uidCounter hands out transfer uids from 0.
type uidCounter struct{ next atomic.Uint64 }

func (u *uidCounter) take() uint64 { return u.next.Add(1) - 1 }
