// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/io/internal/meter"
)

// opMeter counts transfers like t on p.
func (p *path) opMeter(t *transfer) *meter.Op { return p.meter.Op(t.kind == fabric.OpRead) }

// movedOn books that t goes on over another path, after some of it was lost on the last one or
// before any of it began there.
func (t *transfer) movedOn(to *path, lost bool) {
	if t.silent {
		return
	}
	t.path.Load().opMeter(t).MovedOn(lost)
	to.opMeter(t).Enter()
}

// endTime is when t ended. For a success that is the time of its last op, which spares a look at
// the clock.
func (t *transfer) endTime(code StatusCode) time.Time {
	at := time.Duration(t.moved.Load())
	if at == 0 || code.Failed() {
		at = time.Since(t.start)
	}
	return t.start.Add(at)
}

// A recorder counts the transfers of an engine and remembers those that ended last.
type recorder struct {
	meter.Set
	recent  meter.Ring
	born    time.Time
	refused atomic.Uint64 // transfers that never started
	altered atomic.Uint64 // ops sent again because their checksum differed
	packed  atomic.Uint64 // payloads sent compressed
}

// book counts and remembers t, whose end is reported now. Together with what is booked on its way
// that takes 49 ns for a transfer of one op (BenchmarkBooking), and no look at the clock.
func (c *recorder) book(t *transfer, code StatusCode, at time.Time) {
	took := at.Sub(t.start)
	m := t.path.Load().opMeter(t)
	if code.Failed() {
		m.Failed(uint32(code), errors.Is(t.failure(), ErrCanceled))
	} else {
		m.Succeeded(took)
	}
	r := t.record(code)
	r.Took = took
	c.recent.Add(&r)
}

// totals are the sums over all peers.
func (c *recorder) totals() Counters {
	t := c.Totals()
	t.Refused, t.Altered, t.Packed = c.refused.Load(), c.altered.Load(), c.packed.Load()
	return t
}

// record is what is remembered of t.
func (t *transfer) record(code StatusCode) meter.Record {
	return meter.Record{Start: t.start, FirstOp: time.Duration(t.first.Load()),
		LastOp: time.Duration(t.moved.Load()), Bytes: t.bytes.Load(), Total: t.total, UID: t.uid,
		Path: t.path.Load().meter, Tag: t.tag, Ops: t.opsMade, Replays: uint32(t.replays.Load()),
		Code: uint32(code), Read: t.kind == fabric.OpRead}
}

// openRecords are the transfers that have not ended, oldest first, at most n for each peer.
func (s *store) openRecords(now time.Time, n int) []meter.Record {
	var out []meter.Record
	for _, t := range s.openTransfers(n) {
		r := t.record(CodeInProgress)
		r.Took, r.Open = now.Sub(t.start), true
		out = append(out, r)
	}
	return out
}

// openTransfers are the transfers that have not ended, by peer, oldest first, at most n for each.
func (s *store) openTransfers(n int) []*transfer {
	var out []*transfer
	for _, p := range s.allPeers() {
		out = append(out, p.order.oldest(n)...)
	}
	return out
}

// oldest are at most n transfers that have not ended, oldest first.
func (o *order) oldest(n int) []*transfer {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*transfer
	for t := o.head; t != nil && len(out) < n; t = t.next {
		if !t.ended {
			out = append(out, t)
		}
	}
	return out
}

// codeName is the name of a failure's code.
func codeName(code uint32) string {
	if s, ok := codeText[StatusCode(code)]; ok {
		return s
	}
	return "OTHER"
}
