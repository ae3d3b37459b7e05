// SPDX-License-Identifier: MIT

package util

import (
	"sync/atomic"

	"mori/core/fabric"
)

// The kind of an entry, and which place it occupies.
const (
	entryOwn     = iota // success in a reserved place
	entryErr            // error in a reserved place; the first of errs
	entryPassive        // success in a place of TryPush
)

// entries are the unread completions of a CQ: successes in order, with errors among them. Guarded
// by CQ.mu, except ready.
type entries struct {
	ring    []fabric.Completion // length is a power of two
	tags    []uint8
	head    uint64 // next to read
	tail    uint64 // next to fill
	errs    []fabric.ErrEntry
	overrun bool         // a provider pushed without Reserve
	ready   atomic.Int64 // the number of entries; read without the lock
}

func (e *entries) init(slots int) {
	e.ring, e.tags = make([]fabric.Completion, slots), make([]uint8, slots)
}

func (e *entries) empty() bool { return e.head == e.tail }

// add appends c and reports whether there was room.
func (e *entries) add(c fabric.Completion, tag uint8) bool {
	if e.tail-e.head == uint64(len(e.ring)) {
		e.overrun = true
		return false
	}
	i := e.tail & uint64(len(e.ring)-1)
	e.ring[i], e.tags[i] = c, tag
	e.tail++
	e.ready.Store(int64(e.tail - e.head))
	return true
}

// failed reports whether the next entry is an error. There must be one.
func (e *entries) failed() bool { return e.tags[e.head&uint64(len(e.ring)-1)] == entryErr }

// take moves successes up to the first error into dst. It returns their number, and how many are
// passive.
func (e *entries) take(dst []fabric.Completion) (n, passive int) {
	mask := uint64(len(e.ring) - 1)
	for n < len(dst) && e.head != e.tail && e.tags[e.head&mask] != entryErr {
		dst[n] = e.ring[e.head&mask]
		if e.tags[e.head&mask] == entryPassive {
			passive++
		}
		e.head++
		n++
	}
	e.ready.Store(int64(e.tail - e.head))
	return n, passive
}

// takeErr moves the next entry, which must be an error, into out.
func (e *entries) takeErr(out *fabric.ErrEntry) {
	*out = e.errs[0]
	e.errs[0] = fabric.ErrEntry{}
	if e.errs = e.errs[1:]; len(e.errs) == 0 {
		e.errs = nil
	}
	e.head++
	e.ready.Store(int64(e.tail - e.head))
}

// places are the capacity of a CQ: size for the endpoints' ops, and as many for completions that
// peers cause. Guarded by CQ.mu.
type places struct {
	size    int
	held    int // reserved: pending ops and unread entries
	passive int // unread entries of TryPush
	starved bool
}

// reserve takes n places for ops, or none.
func (p *places) reserve(n int) bool {
	if p.held+n > p.size {
		return false
	}
	p.held += n
	return true
}

// full reports whether TryPush has no place, and records the refusal.
func (p *places) full() bool {
	if p.passive < p.size {
		return false
	}
	p.starved = true
	return true
}

// free frees the places of n entries that were read. It reports whether there is room for a TryPush
// that was refused.
func (p *places) free(n, passive int) (room bool) {
	p.held -= n - passive
	p.passive -= passive
	if room = p.starved && passive > 0; room {
		p.starved = false
	}
	return room
}
