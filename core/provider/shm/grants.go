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

// A parkedOp waits for the answer to the grant of its region.
type parkedOp struct {
	ticket conn.Ticket
	op     *fabric.Op
}

// maxRefusals bounds how many regions are remembered for the stream; after that all are asked for
// again.
const maxRefusals = 4096

// initGrants prepares both sides of grants.
func (dp *dataPath) initGrants() {
	dp.out.Send = dp.send
	dp.holder.Out, dp.holder.Parse, dp.holder.Answer, dp.holder.Refusals = &dp.out, parseSite, dp.answered, maxRefusals
	dp.granter.Out, dp.granter.Describe = &dp.out, describe
}

// describe is what the peer needs to reach a region here.
func describe(mr *regions.MR) ([]byte, error) {
	buf := mr.Buffer()
	if buf.Kind != fabric.MemHost { // no process reaches it: the stream does
		return nil, fabric.ErrNotSupported
	}
	return site{buf.Addr, buf.Len, mr.Access()}.encode(), nil
}

// findGrant returns the grant of key that the peer has answered, or takes the op: parked until
// then, or finished as the data path has stopped.
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

// answered starts what waited, on workers: the stream stands still meanwhile.
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
