// SPDX-License-Identifier: MIT

package shm

import (
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
)

// A regionGrant is a region of the peer that this side may reach.
type regionGrant = grant.Grant[site]

// A parkedOp is an op that waits for the grant of its region.
type parkedOp struct {
	ticket conn.Ticket
	op     *fabric.Op
}

// maxRefusals bounds how many refused regions are remembered as using the stream. After that, all
// are requested again.
const maxRefusals = 4096

// initGrants initializes the granter and the holder.
func (dp *dataPath) initGrants() {
	dp.out.Send = dp.send
	dp.holder.Out, dp.holder.Parse, dp.holder.Answer, dp.holder.Refusals = &dp.out, parseSite, dp.answered, maxRefusals
	dp.granter.Out, dp.granter.Describe = &dp.out, describe
}

// describe returns what the peer needs to access a region of this side.
func describe(mr *regions.MR) ([]byte, error) {
	buf := mr.Buffer()
	if buf.Kind != fabric.MemHost { // other processes cannot access it; use the stream
		return nil, fabric.ErrNotSupported
	}
	return site{buf.Addr, buf.Len, mr.Access()}.encode(), nil
}

// findGrant returns the grant of key if the peer has answered. Otherwise it takes over the op and
// returns nil: it parks the op until the answer arrives, or finishes it if the data path has
// stopped.
func (dp *dataPath) findGrant(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) *regionGrant {
	l := dp.holder.Find(key)
	if l == nil {
		dp.finish(t, dp.stopCause())
		return nil
	}
	if l.Ready() {
		return l
	}
	dp.mu.Lock()
	cause, ready := dp.cause, l.Ready()
	if cause == nil && !ready {
		dp.parked[l] = append(dp.parked[l], parkedOp{t, op})
	}
	dp.mu.Unlock()
	switch {
	case ready:
		return l
	case cause != nil:
		dp.finish(t, cause)
	}
	return nil
}

// answered starts the parked ops on workers, because it runs on the stream's reader and must not
// block it.
func (dp *dataPath) answered(l *regionGrant) {
	dp.mu.Lock()
	parked := dp.parked[l]
	delete(dp.parked, l)
	dp.mu.Unlock()
	for _, p := range parked {
		switch l.Refused {
		case 0:
			dp.start(p.ticket, p.op, l, false)
		case fabric.ErrNotSupported:
			dp.ep.HandBack(p.ticket)
			dp.ops.Leave()
		default:
			dp.finish(p.ticket, dp.refusal(l))
		}
	}
}

func (dp *dataPath) refusal(l *regionGrant) error {
	return local.OpFault(l.Refused, "region %d of %s", l.Key.ID, dp.ep.Peer())
}

func revoked(l *regionGrant) error {
	return local.OpFault(fabric.ErrNoKey, "region %d was closed by its owner", l.Key.ID)
}
