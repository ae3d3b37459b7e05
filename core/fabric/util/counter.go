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

// A Counter is a complete fabric.Counter. It counts successes without a lock, and takes the lock
// only when a count reaches a waiter's threshold.
type Counter struct {
	bindings
	value atomic.Uint64
	// next is the lowest threshold of a waiter, or noWaiter. A waiter lowers it before it reads the
	// value again, and Count loads it after changing the value. So at least one of them sees the
	// other.
	next atomic.Uint64

	unit fabric.CountUnit

	mu      sync.Mutex
	errs    uint64
	known   uint64 // the number of errs that ReadErr has returned
	waiters []*countWaiter
	closed  bool

	fd              waitfd.FD
	fdValue, fdErrs uint64 // what the last TryWait saw
}

var _ fabric.Counter = (*Counter)(nil)

// noWaiter is the threshold when nobody waits.
const noWaiter = math.MaxUint64

// A countWaiter is a parked Wait. The goroutine that removes it from the list sets err and closes
// done.
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

// Count adds the success of an op that moved this many bytes.
func (c *Counter) Count(bytes uint64) {
	n := uint64(1)
	if c.unit == fabric.CountBytes {
		n = bytes
	}
	c.reached(c.value.Add(n))
}

// CountErr adds a failure.
func (c *Counter) CountErr() { _ = c.AddErr(1) }

// reached wakes the waiters whose threshold is at most v.
func (c *Counter) reached(v uint64) {
	if v >= c.next.Load() {
		c.mu.Lock()
		c.wake()
		c.mu.Unlock()
	}
}

// wake ends the waits that are over, and signals the descriptor if a count has changed. The caller
// holds mu.
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

// aim sets next to the lowest threshold. The caller holds mu.
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

// verdict reports whether a Wait for threshold is over, and its error. The caller holds mu.
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

// Read returns the number of successes.
func (c *Counter) Read() uint64 { return c.value.Load() }

// ReadErr returns the number of failures. Wait does not report these failures again.
func (c *Counter) ReadErr() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = c.errs
	return c.errs
}

// Add adds to the number of successes.
func (c *Counter) Add(n uint64) error {
	return c.change(func() { c.value.Add(n) })
}

// Set sets the number of successes.
func (c *Counter) Set(v uint64) error {
	return c.change(func() { c.value.Store(v) })
}

// AddErr adds to the number of failures.
func (c *Counter) AddErr(n uint64) error {
	return c.change(func() { c.errs += n })
}

// SetErr sets the number of failures. Wait does not report again those that ReadErr has returned.
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

// Wait parks until there are threshold successes, or failures that ReadErr has not returned; see
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

// FD returns the descriptor to wait on; see fabric.WaitObject. It is closed like a CQ's.
func (c *Counter) FD() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fd.Descriptor(c.closed)
}

// TryWait returns nil if neither count has changed since the last call. FD then reports the next
// change; see fabric.WaitObject.
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
		if !c.changed() { // finds a change whose Count did not see next
			return nil
		}
	}
	c.fd.Disarm()
	c.aim()
	return fabric.ErrAgain
}

// changed reports whether a count has changed since the last call. The caller holds mu.
func (c *Counter) changed() bool {
	value := c.value.Load()
	was := value == c.fdValue && c.errs == c.fdErrs
	c.fdValue, c.fdErrs = value, c.errs
	return !was
}

// Close frees the counter, or returns ErrBusy while an endpoint is bound.
func (c *Counter) Close() error {
	return c.close(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
		c.wake()
		c.fd.Retire()
	})
}
