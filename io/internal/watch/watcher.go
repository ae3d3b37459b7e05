// SPDX-License-Identifier: MIT

package watch

import (
	"sync"

	"mori/core/memory"
)

// A Watcher collects the tokens of statuses that leave IN_PROGRESS, for an event loop. Its
// descriptor is readable while Take would return tokens. Safe for concurrent use.
type Watcher struct {
	mu     sync.Mutex
	event  *memory.Event
	ended  []uint64
	closed bool
}

// New returns a Watcher with an open descriptor.
func New() (*Watcher, error) {
	event, err := memory.NewEvent()
	if err != nil {
		return nil, err
	}
	return &Watcher{event: event}, nil
}

// FD returns the descriptor to wait for input on. The watcher owns it: only Take and Close change
// it.
func (w *Watcher) FD() int { return w.event.FD() }

// Take returns the tokens of the statuses that ended since the last call, and resets the
// descriptor.
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

// Close closes the descriptor. Tokens added later are dropped.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return w.event.Close()
}

// Add queues a token for Take. It does not block.
func (w *Watcher) Add(token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.ended = append(w.ended, token); len(w.ended) == 1 {
		w.event.Set()
	}
}
