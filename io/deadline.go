// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"sync"
	"time"
)

// A clock calls a function every 50 ms, in a goroutine of its own. The zero value stands still.
type clock struct {
	mu    sync.Mutex
	stop  chan struct{} // nil: not started
	ended chan struct{}
}

// clockPeriod is the time between two calls.
const clockPeriod = 50 * time.Millisecond

// start starts the clock, once.
func (c *clock) start(tick func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		return
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	c.stop, c.ended = stop, ended
	go func() {
		defer close(ended)
		t := time.NewTicker(clockPeriod)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				tick()
			case <-stop:
				return
			}
		}
	}()
}

// end stops the clock and waits for a call that is under way. It is called at most once, and start
// not after it.
func (c *clock) end() {
	c.mu.Lock()
	stop, ended := c.stop, c.ended
	c.mu.Unlock()
	if stop != nil {
		close(stop)
		<-ended
	}
}

// nudge lets the workers of paths with a backlog look for room again. Completions do that already;
// this is for a provider that makes room only after it reported a completion.
func (p *peer) nudge() {
	for _, q := range p.allPaths() {
		if q.waiting.Load() > 0 {
			q.wakeWorker()
		}
	}
}

// expire fails the transfers whose deadline has passed and closes their paths, so that no byte of
// them can land here after the status reported the failure. The other transfers go on over a new
// path.
func (p *peer) expire(now time.Time) {
	p.parked.fail(func(t *transfer) error { return t.overdue(now) })
	stalled := map[*path]error{}
	p.order.each(func(t *transfer) {
		if err := t.overdue(now); err != nil {
			t.fail(err)
			stalled[t.path.Load()] = err
		}
	})
	for q, err := range stalled {
		go q.close(fmt.Errorf("a transfer stalled: %w",
			err)) // waits for the transport; the clock should not
	}
}
