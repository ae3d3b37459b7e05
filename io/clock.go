// SPDX-License-Identifier: MIT

package io

import (
	"sync"
	"time"
)

// A clock calls a function every 50 ms in its own goroutine. The zero value is stopped.
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

// end stops the clock and waits for a running call. Call it at most once, and do not call start
// after it.
func (c *clock) end() {
	c.mu.Lock()
	stop, ended := c.stop, c.ended
	c.mu.Unlock()
	if stop != nil {
		close(stop)
		<-ended
	}
}
