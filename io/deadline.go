// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"fmt"
	"time"
)

// startTick starts the engine's clock, once: it looks for transfers past their deadline, for
// backlogs, for paths to mend or to close, and for notifications that nobody asked for. It needs
// e.mu held.
func (e *Engine) startTick() {
	if e.stopTick != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stopTick, e.ticking = stop, make(chan struct{})
	go func() {
		defer close(e.ticking)
		t := time.NewTicker(tick)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				e.arrived.Drain()
				e.meters.Sample(time.Since(e.born))
				for _, p := range e.store.allPeers() {
					p.expire(time.Now())
					p.nudge()
					p.heal(time.Now())
					p.life.beat(p, time.Now())
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}

// nudge lets the workers of paths with a backlog look for room again. Completions do that already;
// this is for a provider that makes room only after it told of a completion.
func (p *peer) nudge() {
	for _, q := range p.allPaths() {
		if q.waiting.Load() > 0 {
			q.wakeWorker()
		}
	}
}

// expire fails the transfers whose deadline has passed and closes their paths, so that no byte of
// them can land here after the status told of the failure. The other transfers go on over a new
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
		go q.close(fmt.Errorf("a transfer stalled: %w", err)) // waits for the transport; the clock should not
	}
}
