// SPDX-License-Identifier: MIT

package transfer

import (
	"sync/atomic"
	"time"
)

// Progress is how far a transfer has come, and when.
type progress struct {
	start time.Time
	bytes atomic.Uint64 // that ended well
	first atomic.Int64  // time of the first progress, ns since start
	moved atomic.Int64  // time of the last one
}

// add counts n bytes that are done now.
func (p *progress) add(n uint64) {
	p.bytes.Add(n)
	at := int64(time.Since(p.start))
	p.moved.Store(at)
	if p.first.Load() == 0 {
		p.first.Store(at)
	}
}

// Began is when the transfer was submitted.
func (p *progress) Began() time.Time { return p.start }

// Moved returns when the last op ended well, ok if any did.
func (p *progress) Moved() (at time.Time, ok bool) {
	n := p.moved.Load()
	return p.start.Add(time.Duration(n)), n > 0
}

// end is when the transfer ended. For a success that is the time of its last op, which spares a
// look at the clock.
func (p *progress) end(failed bool) time.Time {
	at := time.Duration(p.moved.Load())
	if at == 0 || failed {
		at = time.Since(p.start)
	}
	return p.start.Add(at)
}

// epoch is any time that the process knows.
var epoch = time.Now()

// Now is time.Now by one look at the clock in place of two: the monotonic one.
func Now() time.Time { return epoch.Add(time.Since(epoch)) }

// SinceEpoch is a time as an atomic value: nanoseconds after a time of the process.
func SinceEpoch(at time.Time) int64 { return int64(at.Sub(epoch)) }
