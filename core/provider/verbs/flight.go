// SPDX-License-Identifier: MIT

package verbs

import (
	"slices"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/native/verbs"
)

// A flight is an op from RMA to its end. It is used again.
type flight struct {
	path   *dataPath
	ticket conn.Ticket
	op     *fabric.Op

	runs  []run
	wrs   []verbs.SendWR
	sges  []verbs.SGE
	held  []hold // local regions
	grant *grant.Grant[place]

	inline  []byte // what goes inline
	spare   spare  // what its bytes are copied to or from
	leasing bool   // memory of no region is registered for this op alone
	leases  int
	parts   []part

	wire *wire // whose buffer it carries: it is no op

	announced bool // the remote data goes with it
	payload   [noticeLen]byte

	left  atomic.Int32 // work requests that have not ended
	fault atomic.Pointer[error]
}

// A run is bytes that lie together at both ends, within one piece of a registration at either.
type run struct {
	local, remote, n uint64
	reg              *registration // nil: inline
}

// A hold is a local region that is kept open, or memory that is registered for the op alone.
type hold struct {
	mr  *regions.MR // nil: that
	reg *registration
}

// room is where n bytes can be that go inline.
func (f *flight) room(n uint64) uint64 {
	if uint64(len(f.inline)) < n {
		f.inline = make([]byte, n)
	}
	return sys.AddrOf(f.inline)
}

// release lets go of all that the flight holds.
func (f *flight) release() {
	if f.grant != nil {
		f.grant.Use.Leave()
		f.grant = nil
	}
	for i := range f.held {
		h := &f.held[i]
		if h.mr == nil {
			logged(f.path.log, "deregister an op's memory from its device", h.reg.Close())
			continue
		}
		h.reg.use.Leave()
		h.mr.Release()
	}
	if f.spare.of != nil {
		f.spare.put()
		f.spare = spare{}
	}
	if len(f.held) == 0 {
		return
	}
	f.path.pending.Lock() // holds reads it
	defer f.path.pending.Unlock()
	clear(f.held)
	f.held = f.held[:0]
}

// failed notes the first cause.
func (f *flight) failed(err error) { f.fault.CompareAndSwap(nil, &err) }

// ended counts n work requests as over, and ends the op with the last.
func (f *flight) ended(n int32) {
	if f.left.Add(-n) == 0 {
		f.path.landed(f)
	}
}

func (dp *dataPath) newFlight(t conn.Ticket, op *fabric.Op) *flight {
	f := dp.pending.Spare()
	if f == nil {
		f = &flight{path: dp}
	}
	f.ticket, f.op = t, op
	dp.pending.Add(f)
	return f
}

// freeFlight keeps a flight that has ended for another op.
func (dp *dataPath) freeFlight(f *flight) {
	const keepWRs = 1 << 12
	f.release()
	clear(f.runs)
	clear(f.parts)
	f.parts = f.parts[:0]
	f.runs, f.wrs, f.sges = f.runs[:0], f.wrs[:0], f.sges[:0]
	f.op, f.announced, f.leasing, f.leases = nil, false, false, 0
	f.fault.Store(nil)
	if cap(f.wrs) <= keepWRs && cap(f.runs) <= keepWRs {
		dp.pending.Recycle(f)
	} else {
		dp.pending.Remove(f)
	}
}

// holds reports whether work under way keeps a local region open.
func (dp *dataPath) holds(region uint64) bool {
	return dp.pending.Any(func(f *flight) bool {
		return slices.ContainsFunc(f.held, func(h hold) bool { return h.mr != nil && h.mr.Key().ID == region })
	})
}
