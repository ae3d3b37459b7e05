// SPDX-License-Identifier: MIT

package io

import (
	"sync"
	"sync/atomic"
	"time"
)

// An order publishes the successes of the transfers to one peer in submission order, across
// sessions and paths: a reader that sees the last transfer SUCCESS may rely on all earlier ones.
// Failures are reported immediately and hold nothing up.
type order struct {
	mu         sync.Mutex
	head, tail *transfer // in submission order; all but failed heads are unfinished, or wait
	inflight   int
	pending    atomic.Int64  // the loads of the transfers that are not reported; written with mu held
	space      chan struct{} // closed when there is room again; nil while nobody waits

	// book hears of each transfer just before its end is reported; with mu held, so it is quick.
	// nil: nobody.
	book func(t *transfer, code StatusCode, at time.Time)
}

// loadEntries is how many entries of a batch count as one more transfer: they take as much memory.
const loadEntries = 256

// load is what a transfer of n entries counts against the limit on pending transfers.
func load(n int) int64 { return int64(1 + n/loadEntries) }

// room waits until less than limit is pending; 0 is no limit. It takes no lock while there is room,
// so callers at once may exceed the limit by a transfer each. It reports false if there is no room
// in time.
func (o *order) room(limit int64, within time.Duration) bool {
	if o.hasRoom(limit) {
		return true
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		o.mu.Lock()
		if o.hasRoom(limit) {
			o.mu.Unlock()
			return true
		}
		if o.space == nil {
			o.space = make(chan struct{})
		}
		space := o.space
		o.mu.Unlock()
		select {
		case <-space:
		case <-timer.C:
			return o.hasRoom(limit)
		}
	}
}

// hasRoom reports whether less than limit is pending; 0 is no limit.
func (o *order) hasRoom(limit int64) bool { return limit <= 0 || o.pending.Load() < limit }

// leave takes the load of a transfer off. It needs mu held.
func (o *order) leave(t *transfer) {
	o.inflight--
	o.pending.Store(o.pending.Load() - t.load)
	if o.space != nil {
		close(o.space)
		o.space = nil
	}
}

// add appends t. From now on finish(t) must be called exactly once.
func (o *order) add(t *transfer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tail == nil {
		o.head = t
	} else {
		o.tail.next = t
	}
	o.tail = t
	o.inflight++
	o.pending.Store(o.pending.Load() + t.load)
}

// finish ends t, at the given time, and publishes every success that no longer waits for an earlier
// transfer.
func (o *order) finish(t *transfer, code StatusCode, msg string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.ended = true
	if code.Failed() {
		o.report(t, code, at)
		t.status.Update(code, msg)
	} else {
		t.success = msg
	}
	for o.head != nil && o.head.ended {
		h := o.head
		o.head = h.next
		o.leave(h)
		h.next = nil
		o.report(h, CodeSuccess, at)
		h.status.Update(CodeSuccess, h.success) // keeps an error that was reported already
	}
	if o.head == nil {
		o.tail = nil
	}
}

// report books t, once. It needs mu held.
func (o *order) report(t *transfer, code StatusCode, at time.Time) {
	if !t.reported && o.book != nil {
		o.book(t, code, at)
	}
	t.reported = true
}

// over reports whether t has ended, although its success may still wait to be reported.
func (o *order) over(t *transfer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return t.ended
}

// each calls f for every transfer that has not ended, oldest first.
func (o *order) each(f func(*transfer)) {
	o.mu.Lock()
	var all []*transfer
	for t := o.head; t != nil; t = t.next {
		if !t.ended {
			all = append(all, t)
		}
	}
	o.mu.Unlock()
	for _, t := range all {
		f(t)
	}
}
