// SPDX-License-Identifier: MIT

package io

import (
	"sync"
	"sync/atomic"

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

func (w *Watcher) add(token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.ended = append(w.ended, token); len(w.ended) == 1 {
		w.event.Set()
	}
}

// A watch is the watcher to notify when a status leaves IN_PROGRESS.
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
	w.add(token)
}

// FD is a descriptor for poll, epoll and event loops that becomes readable when transfers of e end.
// Reading its 8 bytes makes it not readable until the next one; check statuses after that. It is
// the engine's, which closes it.
func (e *Engine) FD() (int, error) { return e.endings.fd() }

// endings make a descriptor readable when transfers end. The zero value is ready.
type endings struct {
	watcher atomic.Pointer[Watcher] // made by fd

	mu     sync.Mutex
	closed bool
}

func (n *endings) fd() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return -1, ErrClosed
	}
	if w := n.watcher.Load(); w != nil {
		return w.FD(), nil
	}
	w, err := NewWatcher()
	if err != nil {
		return -1, err
	}
	n.watcher.Store(w)
	return w.FD(), nil
}

// add makes the descriptor readable, if anybody asked for it.
func (n *endings) add() {
	if w := n.watcher.Load(); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			w.event.Set()
		}
	}
}

func (n *endings) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if w := n.watcher.Load(); w != nil {
		return w.Close()
	}
	return nil
}
