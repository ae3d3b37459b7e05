// SPDX-License-Identifier: MIT

package watch

import (
	"sync"
	"sync/atomic"

	"mori/io/internal/errs"
)

// Endings makes a descriptor readable when transfers end. The zero value is ready.
type Endings struct {
	watcher atomic.Pointer[Watcher] // made by FD

	mu     sync.Mutex
	closed bool
}

// FD returns the descriptor. The first call opens it. FD fails with ErrClosed after Close.
func (n *Endings) FD() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return -1, errs.ErrClosed
	}
	if w := n.watcher.Load(); w != nil {
		return w.FD(), nil
	}
	w, err := New()
	if err != nil {
		return -1, err
	}
	n.watcher.Store(w)
	return w.FD(), nil
}

// Add makes the descriptor readable, if FD was called.
func (n *Endings) Add() {
	if w := n.watcher.Load(); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			w.event.Set()
		}
	}
}

// Close closes the descriptor.
func (n *Endings) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if w := n.watcher.Load(); w != nil {
		return w.Close()
	}
	return nil
}
