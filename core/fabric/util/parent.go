// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"

	"mori/core/fabric"
)

// A Parent counts an object's open children. The object cannot close before them. The zero value is
// open.
type Parent struct {
	mu       sync.Mutex
	children int
	closed   bool
}

// Adopt counts a child before it is made. It returns ErrClosed, unwrapped, if the parent is closed.
func (p *Parent) Adopt() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fabric.ErrClosed
	}
	p.children++
	return nil
}

// Leave undoes one Adopt.
func (p *Parent) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.children--
}

// Close closes the parent, or returns ErrBusy if a child is open. first reports whether this call
// closed it.
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

// own counts a new object as a child until the object closes.
func (p *Parent) own(child interface{ OnClose(func()) }) error {
	if err := p.Adopt(); err != nil {
		return err
	}
	child.OnClose(p.Leave)
	return nil
}

// A FabricBase is what a provider's fabric embeds. It counts children and opens event queues.
type FabricBase struct{ Parent }

// EQ opens an event queue; see fabric.Fabric.
func (f *FabricBase) EQ(size int) (fabric.EQ, error) {
	q, err := NewEQ(size)
	if err != nil {
		return nil, err
	}
	if err := f.own(q); err != nil {
		return nil, fmt.Errorf("open event queue: fabric: %w", err)
	}
	return q, nil
}

// A DomainBase is what a provider's domain embeds. It counts children and opens queues, counters
// and address vectors.
type DomainBase struct {
	Parent

	// CheckAddr rejects addresses that cannot be inserted into a vector; see AV.OnInsert. nil accepts
	// every address. Set it before others use the domain.
	CheckAddr func(fabric.Addr) error
}

// CQ opens a completion queue; see fabric.Domain.
func (d *DomainBase) CQ(size int) (fabric.CQ, error) {
	q, err := NewCQ(size)
	if err != nil {
		return nil, err
	}
	if err := d.own(q); err != nil {
		return nil, fmt.Errorf("open completion queue: domain: %w", err)
	}
	return q, nil
}

// Counter opens a counter; see fabric.Domain.
func (d *DomainBase) Counter(unit fabric.CountUnit) (fabric.Counter, error) {
	c, err := NewCounter(unit)
	if err != nil {
		return nil, err
	}
	if err := d.own(c); err != nil {
		return nil, fmt.Errorf("open counter: domain: %w", err)
	}
	return c, nil
}

// AV opens an address vector; see fabric.Domain.
func (d *DomainBase) AV(size int) (fabric.AV, error) {
	v, err := d.OpenAV(size)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// OpenAV is AV for a provider that wraps the vector.
func (d *DomainBase) OpenAV(size int) (*AV, error) {
	v, err := NewAV(size)
	if err != nil {
		return nil, err
	}
	if err := d.own(v); err != nil {
		return nil, fmt.Errorf("open address vector: domain: %w", err)
	}
	v.OnInsert(d.CheckAddr)
	return v, nil
}
