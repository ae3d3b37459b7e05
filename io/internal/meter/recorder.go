// SPDX-License-Identifier: MIT

package meter

import (
	"sync/atomic"
	"time"
)

// A Recorder counts the transfers of an engine and keeps the records of the last ones. The zero
// value is ready. Safe for concurrent use.
type Recorder struct {
	Set
	Recent  Ring
	Born    time.Time     // creation time of the engine
	Refused atomic.Uint64 // transfers that never started
	Altered atomic.Uint64 // ops sent again because their checksum differed
	Packed  atomic.Uint64 // payloads sent compressed
}

// Book counts and records a transfer when its end is reported. Together with the counting on its
// way, that takes 49 ns for a transfer of one op (BenchmarkBooking). It does not read the clock.
func (c *Recorder) Book(r *Record, failed, canceled bool) {
	m := r.Path.Op(r.Read)
	if failed {
		m.Failed(r.Code, canceled)
	} else {
		m.Succeeded(r.Took)
	}
	c.Recent.Add(r)
}

// Totals returns the sums over all peers.
func (c *Recorder) Totals() Totals {
	t := c.Set.Totals()
	t.Refused, t.Altered, t.Packed = c.Refused.Load(), c.Altered.Load(), c.Packed.Load()
	return t
}
