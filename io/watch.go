// SPDX-License-Identifier: MIT

package io

import (
	"sync"

	"mori/core/memory"
)

// A Watcher hears of statuses that leave IN_PROGRESS, for an event loop: its descriptor is readable
// while there is something to take. Safe for concurrent use.
type Watcher struct {
	mu     sync.Mutex
	event  *memory.Event
	ended  []uint64
	closed bool
}

// NewWatcher makes one with a descriptor.
func NewWatcher() (*Watcher, error) {
	event, err := memory.NewEvent()
	if err != nil {
		return nil, err
	}
	return &Watcher{event: event}, nil
}

// FD is the descriptor to wait for input on. It is the watcher's: only Take and Close change it.
func (w *Watcher) FD() int { return w.event.FD() }

// Take returns the tokens of what ended since the last call, and makes the descriptor not readable.
func (w *Watcher) Take() []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.event.Clear()
	ended := w.ended
	w.ended = nil
	return ended
}

// Close frees the descriptor; what ends later goes nowhere.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return w.event.Close()
}

func (w *Watcher) tell(token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.ended = append(w.ended, token); len(w.ended) == 1 {
		w.event.Set()
	}
}

// A watch is who is told when a status leaves IN_PROGRESS.
type watch struct {
	by    *Watcher
	token uint64
}

// Watch makes w take token when s is not in progress any more, which may be now.
func (s *Status) Watch(w *Watcher, token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Code() == CodeInProgress {
		s.watches = append(s.watches, watch{w, token})
		return
	}
	w.tell(token)
}

// FD is a descriptor for poll, epoll and event loops that becomes readable when transfers of e end.
// Reading its 8 bytes makes it not readable until the next one; look at statuses after that. It is
// the engine's, which closes it.
func (e *Engine) FD() (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed() {
		return -1, ErrClosed
	}
	if w := e.ended.Load(); w != nil {
		return w.FD(), nil
	}
	w, err := NewWatcher()
	if err != nil {
		return -1, err
	}
	e.ended.Store(w)
	return w.FD(), nil
}

// tellEnded makes the engine's descriptor readable, if anybody asked for it.
func (e *Engine) tellEnded() {
	if w := e.ended.Load(); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			w.event.Set()
		}
	}
}
