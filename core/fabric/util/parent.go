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

// OpenCQ makes a completion queue that is a child until it closes. OpenCounter and OpenAV do the
// same for theirs.
func (p *Parent) OpenCQ(size int) (*CQ, error) {
	q, err := NewCQ(size)
	if err != nil {
		return nil, err
	}
	return q, p.own("completion queue", q)
}

// OpenCounter makes a counter; see OpenCQ.
func (p *Parent) OpenCounter(unit fabric.CountUnit) (*Counter, error) {
	c, err := NewCounter(unit)
	if err != nil {
		return nil, err
	}
	return c, p.own("counter", c)
}

// OpenAV makes an address vector; see OpenCQ.
func (p *Parent) OpenAV(size int) (*AV, error) {
	v, err := NewAV(size)
	if err != nil {
		return nil, err
	}
	return v, p.own("address vector", v)
}

// own counts a new object as a child until it closes.
func (p *Parent) own(what string, child interface{ OnClose(func()) }) error {
	if err := p.Adopt(); err != nil {
		return fmt.Errorf("open %s: domain: %w", what, err)
	}
	child.OnClose(p.Leave)
	return nil
}
