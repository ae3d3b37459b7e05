// SPDX-License-Identifier: MIT

package util

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
)

func newCounter(t testing.TB, unit fabric.CountUnit) *Counter {
	c, err := NewCounter(unit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCounterUnits(t *testing.T) {
	if _, err := NewCounter(fabric.CountBytes + 1); !errors.Is(err, fabric.ErrInvalid) {
		t.Fatalf("unknown unit: %v", err)
	}
	for unit, want := range map[fabric.CountUnit]uint64{fabric.CountOps: 3, fabric.CountBytes: 111} {
		c := newCounter(t, unit)
		c.Count(1)
		c.Count(10)
		c.Count(100)
		c.CountErr()
		if c.Read() != want || c.ReadErr() != 1 {
			t.Errorf("unit %d: %d and %d, want %d and 1", unit, c.Read(), c.ReadErr(), want)
		}
	}
}

func TestCounterSet(t *testing.T) {
	c := newCounter(t, fabric.CountBytes)
	if err := errors.Join(c.Set(5), c.Add(7), c.SetErr(2), c.AddErr(1)); err != nil {
		t.Fatal(err)
	}
	if c.Read() != 12 || c.ReadErr() != 3 {
		t.Fatalf("got %d and %d", c.Read(), c.ReadErr())
	}
}

// TestCounterWait goes through what ends a Wait at once.
func TestCounterWait(t *testing.T) {
	c := newCounter(t, fabric.CountOps)
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	for _, step := range []struct {
		name      string
		do        func() error
		threshold uint64
		want      error
	}{
		{"threshold 0", func() error { return nil }, 0, nil},
		{"nothing, and an ended context", func() error { return nil }, 1, context.Canceled},
		{"a threshold that was reached", func() error { return c.Set(9) }, 9, nil},
		{"a failure", func() error { return c.AddErr(1) }, 10, fabric.ErrAvail},
		{"a failure, but enough successes", func() error { return nil }, 9, nil},
		{"a failure that is known", func() error { c.ReadErr(); return nil }, 10, context.Canceled},
		{"another failure", func() error { return c.AddErr(1) }, 10, fabric.ErrAvail},
		{"failures taken back", func() error { return c.SetErr(0) }, 10, context.Canceled},
		{"failures that were set", func() error { return c.SetErr(1) }, 10, fabric.ErrAvail},
		{"closed", c.Close, 9, fabric.ErrClosed},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if err := c.Wait(ended, step.threshold); err != step.want {
			t.Errorf("%s: %v, want %v", step.name, err, step.want)
		}
	}
}

// parked waits until n waiters are on the counter's list.
func parked(t *testing.T, c *Counter, n int) {
	t.Helper()
	for ctx := testContext(t); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		got := len(c.waiters)
		c.mu.Unlock()
		if got == n {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d waiters are parked, want %d", got, n)
		}
	}
}

func TestCounterWakes(t *testing.T) {
	c := newCounter(t, fabric.CountOps)
	if err := c.Bind(); err != nil {
		t.Fatal(err)
	}
	wait := func(threshold uint64) chan error {
		done := make(chan error, 1)
		go func() { done <- c.Wait(testContext(t), threshold) }()
		return done
	}
	expect := func(name string, done chan error, want error) {
		t.Helper()
		if err := <-done; err != want {
			t.Fatalf("%s: %v, want %v", name, err, want)
		}
	}
	two, three, nine := wait(2), wait(3), wait(9)
	parked(t, c, 3)
	c.Count(1)
	parked(t, c, 3)
	c.Count(1)
	expect("the second success", two, nil)
	parked(t, c, 2)
	if err := c.Set(3); err != nil {
		t.Fatal(err)
	}
	expect("a value that was set", three, nil)
	c.CountErr()
	expect("a failure", nine, fabric.ErrAvail)
	c.ReadErr()
	last := wait(100)
	parked(t, c, 1)
	if err := c.Close(); !errors.Is(err, fabric.ErrBusy) {
		t.Fatalf("close of a bound counter: %v", err)
	}
	c.Unbind()
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	expect("close", last, fabric.ErrClosed)
	for _, err := range []error{c.Add(1), c.Set(1), c.AddErr(1), c.SetErr(1), errors.Unwrap(c.Bind())} {
		if err != fabric.ErrClosed {
			t.Errorf("after close: %v", err)
		}
	}
}

// TestCounterConcurrently has waiters for every value, and counters that run into them.
func TestCounterConcurrently(t *testing.T) {
	const counters, waiters, each = 4, 4, 5000
	c := newCounter(t, fabric.CountOps)
	ctx := testContext(t)
	var wg sync.WaitGroup
	for range counters {
		start(&wg, func() {
			for range each {
				c.Count(0)
			}
		})
	}
	for w := range waiters {
		start(&wg, func() {
			for v := uint64(w); v <= counters*each; v += waiters {
				if err := c.Wait(ctx, v); err != nil || c.Read() < v {
					t.Errorf("wait for %d: %v at %d", v, err, c.Read())
					return
				}
			}
		})
	}
	wg.Wait()
	if c.Read() != counters*each {
		t.Errorf("counted %d of %d", c.Read(), counters*each)
	}
}

func TestCounterDoesNotAllocate(t *testing.T) {
	c := newCounter(t, fabric.CountOps)
	ctx := testContext(t)
	if n := testing.AllocsPerRun(1000, func() {
		c.Count(1)
		c.CountErr()
		_ = c.ReadErr()
		_ = c.Wait(ctx, c.Read())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCounter(b *testing.B) {
	c := newCounter(b, fabric.CountOps)
	for b.Loop() {
		c.Count(1)
	}
}
