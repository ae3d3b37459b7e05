// SPDX-License-Identifier: MIT

package transfer

import (
	"sync/atomic"
	"time"
)

// progress records how far a transfer has come, and when.
type progress struct {
	start time.Time
	bytes atomic.Uint64 // of ops that succeeded
	first atomic.Int64  // time of the first progress, ns since start
	moved atomic.Int64  // time of the last progress
}

// add counts n more transferred bytes.
func (p *progress) add(n uint64) {
	p.bytes.Add(n)
	at := int64(time.Since(p.start))
	p.moved.Store(at)
	if p.first.Load() == 0 {
		p.first.Store(at)
	}
}

// Began returns when the transfer was submitted.
func (p *progress) Began() time.Time { return p.start }

// Moved returns when the last op succeeded. ok is false if none has.
func (p *progress) Moved() (at time.Time, ok bool) {
	n := p.moved.Load()
	return p.start.Add(time.Duration(n)), n > 0
}

// end returns when the transfer ended. A success ends with its last op, which saves reading the
// clock.
func (p *progress) end(failed bool) time.Time {
	at := time.Duration(p.moved.Load())
	if at == 0 || failed {
		at = time.Since(p.start)
	}
	return p.start.Add(at)
}

// epoch is the reference for SinceEpoch.
var epoch = time.Now()

// Now returns the current time. It reads only the monotonic clock, where time.Now reads two clocks.
func Now() time.Time { return epoch.Add(time.Since(epoch)) }

// SinceEpoch converts a time to nanoseconds since epoch, for atomic values.
func SinceEpoch(at time.Time) int64 { return int64(at.Sub(epoch)) }
