// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"

	"mori/core/fabric"
)

// A Parent counts what is open below an object, which closes only when that is nothing. The zero
// value is open.
type Parent struct {
	mu       sync.Mutex
	children int
	closed   bool
}

// Adopt counts a child that is about to be made; ErrClosed, bare, if the parent is closed.
func (p *Parent) Adopt() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fabric.ErrClosed
	}
	p.children++
	return nil
}

// Leave ends what Adopt began.
func (p *Parent) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.children--
}

// Close closes the parent, ErrBusy if a child is open, and reports whether it was this call that
// did.
func (p *Parent) Close() (first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, nil
	}
	if p.children > 0 {
		return false, fmt.Errorf("close with %d children open: %w", p.children, fabric.ErrBusy)
	}
	p.closed = true
	return true, nil
}
