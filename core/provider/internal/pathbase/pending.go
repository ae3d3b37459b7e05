// SPDX-License-Identifier: MIT

package pathbase

import "sync"

// keep is how many ended ops a Pending keeps for reuse.
const keep = 64

// A Pending holds the pending ops of a data path, of the path's own type Op, and some ended ops for
// reuse.
type Pending[Op any] struct {
	New func() *Op

	mu    sync.Mutex // protects what follows
	live  map[*Op]struct{}
	spare []*Op
}

// Get returns an ended op or a new one. It is not pending yet.
func (p *Pending[Op]) Get() *Op {
	if op := p.reuse(); op != nil {
		return op
	}
	return p.New()
}

func (p *Pending[Op]) reuse() *Op {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.spare)
	if n == 0 {
		return nil
	}
	op := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return op
}

// Add makes op pending.
func (p *Pending[Op]) Add(op *Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == nil {
		p.live = make(map[*Op]struct{})
	}
	p.live[op] = struct{}{}
}

// Remove removes op from the pending ops.
func (p *Pending[Op]) Remove(op *Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, op)
}

// Recycle removes op and keeps it for Get, unless enough are kept. The caller has cleared op and
// must not use it any more.
func (p *Pending[Op]) Recycle(op *Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, op)
	if len(p.spare) < keep {
		p.spare = append(p.spare, op)
	}
}

// Lock excludes Any, so that the caller can change what the functions of Any read.
func (p *Pending[Op]) Lock() { p.mu.Lock() }

// Unlock undoes Lock.
func (p *Pending[Op]) Unlock() { p.mu.Unlock() }

// Any calls fn with pending ops until fn returns true, and reports whether it did.
func (p *Pending[Op]) Any(fn func(*Op) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for op := range p.live {
		if fn(op) {
			return true
		}
	}
	return false
}

// Len returns the number of pending ops.
func (p *Pending[Op]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live)
}
