// SPDX-License-Identifier: MIT

package io

import (
	"sync"
	"time"
)

// An order publishes the successes of the transfers to one peer in submission order, across sessions and paths:
// a reader that sees the last transfer SUCCESS may rely on all earlier ones. Failures are told at once and
// hold nobody up.
type order struct {
	mu         sync.Mutex
	head, tail *transfer // in submission order; all but failed heads are unfinished or wait for one that is
	inflight   int

	// book hears of each transfer just before its end is told; with mu held, so it is quick. nil: nobody.
	book func(t *transfer, code StatusCode, at time.Time)
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
}

// finish ends t, at the given time, and publishes every success that no longer waits for an earlier transfer.
func (o *order) finish(t *transfer, code StatusCode, msg string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.ended = true
	if code.Failed() {
		o.tell(t, code, at)
		t.status.Update(code, msg)
	} else {
		t.success = msg
	}
	for o.head != nil && o.head.ended {
		h := o.head
		o.head = h.next
		o.inflight--
		h.next = nil
		o.tell(h, CodeSuccess, at)
		h.status.Update(CodeSuccess, h.success) // keeps an error that was told already
	}
	if o.head == nil {
		o.tail = nil
	}
}

// tell books t, once. It needs mu held.
func (o *order) tell(t *transfer, code StatusCode, at time.Time) {
	if !t.told && o.book != nil {
		o.book(t, code, at)
	}
	t.told = true
}

// over tells whether t has ended, although its success may still wait to be told.
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
