// SPDX-License-Identifier: MIT

package util

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util/internal/waitfd"
)

// A Counter is a complete fabric.Counter. Successes are counted without a lock. The lock is taken
// only when a count reaches the threshold of a waiter.
type Counter struct {
	bindings
	value atomic.Uint64
	// next is the least threshold of a waiter, or noWaiter. A waiter lowers it before it looks at
	// the value again, and a count loads it after it has changed the value. So one sees the other.
	next atomic.Uint64

	unit fabric.CountUnit

	mu      sync.Mutex
	errs    uint64
	known   uint64 // the errs that ReadErr has returned
	waiters []*countWaiter
	closed  bool

	fd              waitfd.FD
	fdValue, fdErrs uint64 // what TryWait saw last
}

var _ fabric.Counter = (*Counter)(nil)

// noWaiter is the threshold without a waiter.
const noWaiter = math.MaxUint64

// A countWaiter is a Wait that is parked. The goroutine that takes it off the list sets err and
// closes done.
type countWaiter struct {
	threshold uint64
	err       error
	done      chan struct{}
}

// NewCounter makes a counter at zero.
func NewCounter(unit fabric.CountUnit) (*Counter, error) {
	if unit > fabric.CountBytes {
		return nil, fmt.Errorf("open counter of unit %d: %w", unit, fabric.ErrInvalid)
	}
	c := &Counter{bindings: bindings{object: "counter"}, unit: unit}
	c.next.Store(noWaiter)
	return c, nil
}

// Count adds the success of an op that moved so many bytes.
func (c *Counter) Count(bytes uint64) {
	n := uint64(1)
	if c.unit == fabric.CountBytes {
		n = bytes
	}
	c.reached(c.value.Add(n))
}

// CountErr adds a failure.
func (c *Counter) CountErr() { _ = c.AddErr(1) }

// reached wakes those who wait for a value up to v.
func (c *Counter) reached(v uint64) {
	if v >= c.next.Load() {
		c.mu.Lock()
		c.wake()
		c.mu.Unlock()
	}
}

// wake ends the waits that are over, and fires the descriptor if a count has changed. With mu held.
func (c *Counter) wake() {
	if c.value.Load() != c.fdValue || c.errs != c.fdErrs {
		c.fd.Fire()
	}
	c.waiters = slices.DeleteFunc(c.waiters, func(w *countWaiter) bool {
		err, over := c.verdict(w.threshold)
		if over {
			w.err = err
			close(w.done)
		}
		return over
	})
	c.aim()
}

// aim sets next. With mu held.
func (c *Counter) aim() {
	least := uint64(noWaiter)
	if c.fd.Armed() {
		least = 0
	}
	for _, w := range c.waiters {
		least = min(least, w.threshold)
	}
	c.next.Store(least)
}

// verdict is how a Wait for threshold ends now, if it does. With mu held.
func (c *Counter) verdict(threshold uint64) (err error, over bool) {
	switch {
	case c.closed:
		return fabric.ErrClosed, true
	case c.value.Load() >= threshold:
		return nil, true
	case c.errs != c.known:
		return fabric.ErrAvail, true
	}
	return nil, false
}

// Read is the count of successes.
func (c *Counter) Read() uint64 { return c.value.Load() }

// ReadErr is the count of failures, which Wait does not report again.
func (c *Counter) ReadErr() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = c.errs
	return c.errs
}

// Add adds to the count of successes.
func (c *Counter) Add(n uint64) error {
	return c.change(func() { c.value.Add(n) })
}

// Set sets the count of successes.
func (c *Counter) Set(v uint64) error {
	return c.change(func() { c.value.Store(v) })
}

// AddErr adds to the count of failures.
func (c *Counter) AddErr(n uint64) error {
	return c.change(func() { c.errs += n })
}

// SetErr sets the count of failures. Those that ReadErr has returned are known.
func (c *Counter) SetErr(v uint64) error {
	return c.change(func() { c.errs, c.known = v, min(c.known, v) })
}

func (c *Counter) change(fn func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fabric.ErrClosed
	}
	fn()
	c.wake()
	return nil
}

// Wait parks until there are threshold successes, or failures that are not known; see
// fabric.Counter.
func (c *Counter) Wait(ctx context.Context, threshold uint64) error {
	c.mu.Lock()
	if err, over := c.verdict(threshold); over {
		c.mu.Unlock()
		return err
	}
	w := &countWaiter{threshold: threshold, done: make(chan struct{})}
	c.waiters = append(c.waiters, w)
	c.aim()
	c.wake()
	c.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waiters, w); i >= 0 {
		c.waiters = slices.Delete(c.waiters, i, i+1)
		c.aim()
		return ctx.Err()
	}
	return w.err
}

// FD is the descriptor to wait on; see fabric.WaitObject. It is closed as a CQ's is.
func (c *Counter) FD() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fd.Descriptor(c.closed)
}

// TryWait is nil if both counts are as the last call saw them, and FD will report a change; see
// fabric.WaitObject.
func (c *Counter) TryWait() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.fd.Release()
		return fabric.ErrClosed
	}
	if !c.changed() {
		if err := c.fd.Arm(); err != nil {
			return err
		}
		c.aim()
		if !c.changed() { // a count that did not see next yet is seen here
			return nil
		}
	}
	c.fd.Disarm()
	c.aim()
	return fabric.ErrAgain
}

// changed reports whether a count is not what it was at the last call. With mu held.
func (c *Counter) changed() bool {
	value := c.value.Load()
	was := value == c.fdValue && c.errs == c.fdErrs
	c.fdValue, c.fdErrs = value, c.errs
	return !was
}

// Close frees the counter, or answers ErrBusy while an endpoint is bound.
func (c *Counter) Close() error {
	return c.close(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
		c.wake()
		c.fd.Retire()
	})
}
