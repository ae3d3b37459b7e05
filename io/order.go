// SPDX-License-Identifier: MIT

package io

import "sync"

// An order publishes the successes of the transfers to one peer in submission order, across sessions and paths:
// a reader that sees the last transfer SUCCESS may rely on all earlier ones. Failures are told at once and
// hold nobody up.
type order struct {
	mu         sync.Mutex
	head, tail *transfer // in submission order; all but failed heads are unfinished or wait for one that is
	inflight   int
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

// finish ends t and publishes every success that no longer waits for an earlier transfer.
func (o *order) finish(t *transfer, code StatusCode, msg string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.ended = true
	if code.Failed() {
		t.status.Update(code, msg)
	} else {
		t.success = msg
	}
	for o.head != nil && o.head.ended {
		h := o.head
		o.head = h.next
		o.inflight--
		h.next = nil
		h.status.Update(CodeSuccess, h.success) // keeps an error that was told already
	}
	if o.head == nil {
		o.tail = nil
	}
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
