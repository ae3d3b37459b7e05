// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"mori/core/fabric"
)

// A lease is how long a peer with open paths may give no sign of life. Then its paths are closed,
// and their transfers go on over new ones, or wait: a host that lost its power or its cable sends
// nothing that would end a connection. Signs of life are answers to a Beat of the control plane,
// and progress of transfers. The engine's clock drives it, without Python and its lock.
type lease struct {
	heard   atomic.Int64 // the last sign of life, ns since the epoch
	asked   atomic.Int64 // the last beat
	beating atomic.Bool  // one is under way
}

// beatsPerLease is how many beats may go unanswered.
const beatsPerLease = 3

// beat asks a peer with open paths for a sign of life when it is time, and closes the paths of one
// that gave none for too long.
func (l *lease) beat(p *peer, now time.Time) {
	limit := p.engine.lease
	paths := p.pathsByRoute()
	if limit <= 0 || len(paths) == 0 {
		l.heard.Store(0)
		return
	}
	l.heard.CompareAndSwap(0, now.UnixNano()) // a path was just made
	p.order.each(func(t *transfer) {
		if at := t.start.UnixNano() + t.moved.Load(); t.moved.Load() > 0 && at > l.heard.Load() {
			l.heard.Store(at)
		}
	})
	if silent := now.UnixNano() - l.heard.Load(); silent > int64(limit) {
		l.heard.Store(0)
		err := fmt.Errorf("%q showed no sign of life for %d ms: %w", p.desc.Key,
			silent/int64(time.Millisecond), fabric.ErrTimeout)
		for _, q := range paths {
			p.health.Broke(q.tr.Name(), err)
			go q.close(err)
		}
		return
	}
	if now.UnixNano()-l.asked.Load() < int64(limit/beatsPerLease) || l.beating.Swap(true) {
		return
	}
	l.asked.Store(now.UnixNano())
	p.spawn(func() {
		defer l.beating.Store(false)
		ctx, cancel := context.WithTimeout(p.stopped, limit)
		defer cancel()
		if err := p.ctl.Beat(ctx); err == nil {
			l.heard.Store(time.Now().UnixNano())
		}
	})
}
