// SPDX-License-Identifier: MIT

package transfer

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"mori/io/internal/errs"
	"mori/io/internal/meter"
)

// An Order publishes the successes of the transfers to one peer in submission order, across
// sessions and paths. A reader that sees SUCCESS for the last transfer may rely on all earlier
// ones. Failures are reported immediately and delay nothing.
type Order struct {
	mu         sync.Mutex
	head, tail *Transfer // in submission order; all but failed heads are unfinished, or wait
	inflight   int
	pending    atomic.Int64  // sum of the loads of unreported transfers; written with mu held
	space      chan struct{} // closed when there is room again; nil if no caller waits

	recorder *meter.Recorder // records each transfer just before its end is reported; nil: none
}

// LoadEntries is the number of batch entries that count as one more transfer, since they take as
// much memory.
const LoadEntries = 256

// load returns how much a transfer of n entries counts against the limit on pending transfers.
func load(n int) int64 { return int64(1 + n/LoadEntries) }

// Room blocks until the pending load is below limit; 0 is no limit. It takes no lock while there is
// room, so concurrent callers may each exceed the limit by one transfer. It reports false if there
// is no room in time.
func (o *Order) Room(limit int64, within time.Duration) bool {
	if o.HasRoom(limit) {
		return true
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		o.mu.Lock()
		if o.HasRoom(limit) {
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
			return o.HasRoom(limit)
		}
	}
}

// HasRoom reports whether the pending load is below limit; 0 is no limit.
func (o *Order) HasRoom(limit int64) bool { return limit <= 0 || o.pending.Load() < limit }

// leave subtracts the load of a transfer. It needs mu held.
func (o *Order) leave(t *Transfer) {
	o.inflight--
	o.pending.Store(o.pending.Load() - t.load)
	if o.space != nil {
		close(o.space)
		o.space = nil
	}
}

// add appends t. The caller must then call finish(t) exactly once.
func (o *Order) add(t *Transfer) {
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

// finish ends t at the given time. It publishes every success that no longer waits for an earlier
// transfer.
func (o *Order) finish(t *Transfer, code Code, msg string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.ended = true
	if code.Failed() {
		o.report(t, code, at)
		t.Status.Update(code, msg)
	} else {
		t.success = msg
	}
	for o.head != nil && o.head.ended {
		h := o.head
		o.head = h.next
		o.leave(h)
		h.next = nil
		o.report(h, Success, at)
		h.Status.Update(Success, h.success) // keeps an error that was already reported
	}
	if o.head == nil {
		o.tail = nil
	}
}

// report records t, once. It needs mu held.
func (o *Order) report(t *Transfer, code Code, at time.Time) {
	if !t.reported && o.recorder != nil {
		r := t.Record(code)
		r.Took = at.Sub(t.start)
		o.recorder.Book(&r, code.Failed(), code.Failed() && errors.Is(t.Failure(), errs.ErrCanceled))
	}
	t.reported = true
}

// over reports whether t has ended. Its success may still be waiting to be reported.
func (o *Order) over(t *Transfer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return t.ended
}

// Each calls f for every transfer that has not ended, oldest first.
func (o *Order) Each(f func(*Transfer)) {
	o.mu.Lock()
	var all []*Transfer
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

// oldest returns up to n transfers that have not ended, oldest first.
func (o *Order) oldest(n int) []*Transfer {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*Transfer
	for t := o.head; t != nil && len(out) < n; t = t.next {
		if !t.ended {
			out = append(out, t)
		}
	}
	return out
}

// InFlight returns the number of transfers in the order.
func (o *Order) InFlight() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inflight
}

// Load returns the sum of the loads of pending transfers.
func (o *Order) Load() int64 { return o.pending.Load() }
