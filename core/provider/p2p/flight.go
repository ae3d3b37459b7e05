// SPDX-License-Identifier: MIT

package p2p

import (
	"sync/atomic"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/local"
)

// A flight is an op from RMA to its end, or an order of the peer that is carried out here. It is
// used again.
type flight struct {
	path  *dataPath
	owner lander
	ended atomic.Bool // somebody has ended it

	// Of an op.
	ticket conn.Ticket
	op     *fabric.Op

	// Of an op that the peer copies, and of an order.
	number uint64
	parts  int
	order  *order

	regions []uint64 // local ones that a copy under way keeps open; read under pending.Any

	segs   []device.CopySegment
	blocks device.CopyBlocks // in place of segs, if it has some
	bytes  uint64
	held   []hold       // local regions
	grant  *regionGrant // that it is inside of, and of the peer's fence
	lane   *lane
	copy   device.Copy

	begun, look, until time.Time // look: from when on it may have ended; until: how long to spin then
	caught             bool      // it was seen under way after that: the time of its end is known
}

// A hold is a local region that is kept open, and what devices see of it.
type hold struct {
	mr      *regions.MR
	pin     *hostPin // of host memory: the flight is inside
	shift   uint64   // from an address to the device's
	reached bool     // the copying device was let at it
}

// start has the device copy.
func (f *flight) start() (device.Copy, error) {
	if len(f.blocks.DstOffsets) > 0 {
		return f.lane.copier.StartBlocks(f.blocks)
	}
	return f.lane.copier.Start(f.segs)
}

// release lets go of all that the flight holds.
func (f *flight) release() {
	if f.grant != nil {
		f.path.theirs.Leave()
		f.grant.Use.Leave()
		f.grant = nil
	}
	for i := range f.held {
		if h := &f.held[i]; h.pin != nil {
			h.pin.use.Leave()
		}
		f.held[i].mr.Release()
		f.held[i] = hold{}
	}
	f.held = f.held[:0]
}

// expect sets when a copy that has begun is looked at. Copies of one device share its links, so it
// comes to its end behind those that are under way already.
func (f *flight) expect() {
	f.lane.under += f.bytes
	takes := time.Duration(float64(f.lane.under) * f.lane.nsPerByte)
	f.look = f.begun.Add(takes - spinEarly)
	f.until = f.begun.Add(takes + spinFor)
	f.caught = false
}

// nap is how long nobody needs to look at f; 0 while it is expected to end.
func (f *flight) nap(now time.Time) time.Duration {
	f.caught = f.caught || now.After(f.look)
	if now.After(f.until) {
		f.look = now.Add(max(now.Sub(f.begun)/overdue, shortNap))
		f.until = f.look.Add(spinFor)
	}
	return max(0, f.look.Sub(now))
}

// leastBytes is from how many bytes on a copy shows its lane's speed.
const leastBytes = 1 << 20

// measured remembers how fast the lane was: since the copy began, or since the one before it ended,
// with which it shared the way.
func (f *flight) measured(now time.Time, err error) {
	ln := f.lane
	ln.flying.Add(-1)
	start := f.begun
	if ln.ended.After(start) {
		start = ln.ended
	}
	ln.under -= f.bytes
	ln.ended = now
	if err == nil && f.bytes >= leastBytes {
		ln.learn(float64(now.Sub(start))/float64(f.bytes), f.caught)
	}
}

// learn takes in the time of a copy for each byte. One that had ended before anybody looked took
// less: who expects too much sleeps too long and sees what it expects, so the expectation falls
// until copies are caught under way.
func (ln *lane) learn(per float64, caught bool) {
	switch {
	case !caught && ln.missed:
		ln.nsPerByte = min(ln.nsPerByte, per) * 2 / 3
	case !caught: // by a little, it may be
		ln.nsPerByte = min(ln.nsPerByte, per) * 15 / 16
	case ln.nsPerByte == 0:
		ln.nsPerByte = per
	default:
		ln.nsPerByte += (per - ln.nsPerByte) / 4
	}
	ln.missed = !caught
}

// A hostPin is what devices see of a local region of host memory.
type hostPin struct {
	use    local.Gate
	vendor device.Vendor
	pinned *pinned
	err    error // it cannot be had
}

// Use is the gate of the copies; see pathbase.Registration.
func (p *hostPin) Use() *local.Gate { return &p.use }

// Close unpins the memory.
func (p *hostPin) Close() error {
	if p.pinned == nil {
		return nil
	}
	return p.pinned.release()
}
