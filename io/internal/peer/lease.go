// SPDX-License-Identifier: MIT

package peer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/io/internal/transfer"
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
func (l *lease) beat(p *Peer, now time.Time) {
	limit := p.config.Lease
	paths := p.paths.open()
	if limit <= 0 || len(paths) == 0 {
		l.heard.Store(0)
		return
	}
	l.heard.CompareAndSwap(0, now.UnixNano()) // a path was just made
	p.Pending.Order.Each(func(t *transfer.Transfer) {
		if at, ok := t.Moved(); ok && at.UnixNano() > l.heard.Load() {
			l.heard.Store(at.UnixNano())
		}
	})
	if silent := now.UnixNano() - l.heard.Load(); silent > int64(limit) {
		l.heard.Store(0)
		err := fmt.Errorf("%q showed no sign of life for %d ms: %w", p.Desc.Key,
			silent/int64(time.Millisecond), fabric.ErrTimeout)
		for _, q := range paths {
			p.health.Broke(q.Transport().Name(), err)
			go q.Close(err)
		}
		return
	}
	if now.UnixNano()-l.asked.Load() < int64(limit/beatsPerLease) || l.beating.Swap(true) {
		return
	}
	l.asked.Store(now.UnixNano())
	p.tasks.spawn(func() {
		defer l.beating.Store(false)
		ctx, cancel := context.WithTimeout(p.tasks.ctx, limit)
		defer cancel()
		if err := p.control.Beat(ctx); err == nil {
			l.heard.Store(time.Now().UnixNano())
		}
	})
}

// silent is how long the peer has given no sign of life, 0 without an open path.
func (l *lease) silent() time.Duration {
	if at := l.heard.Load(); at != 0 {
		return time.Since(time.Unix(0, at))
	}
	return 0
}
