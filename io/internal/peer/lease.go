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

// A lease is how long a peer with open paths may show no sign of life. When it expires, the peer's
// paths are closed, and their transfers move to new paths or wait. This detects a host that lost
// its power or its cable: such a host sends nothing that would end a connection. Signs of life are
// answers to a Beat of the control plane, and progress of transfers. The engine's clock drives the
// lease, without Python and its GIL.
type lease struct {
	heard   atomic.Int64 // last sign of life, ns since the Unix epoch
	asked   atomic.Int64 // last beat, ns since the Unix epoch
	beating atomic.Bool  // a beat is pending
}

// beatsPerLease is the number of beats in the time of one lease.
const beatsPerLease = 3

// beat asks a peer with open paths for a sign of life when it is time. If the peer's lease has
// expired, beat closes its paths.
func (l *lease) beat(p *Peer, now time.Time) {
	limit := p.config.Lease
	paths := p.paths.open()
	if limit <= 0 || len(paths) == 0 {
		l.heard.Store(0)
		return
	}
	l.heard.CompareAndSwap(0, now.UnixNano()) // a path was just opened
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

// silent returns the time since the peer's last sign of life, 0 without an open path.
func (l *lease) silent() time.Duration {
	if at := l.heard.Load(); at != 0 {
		return time.Since(time.Unix(0, at))
	}
	return 0
}
