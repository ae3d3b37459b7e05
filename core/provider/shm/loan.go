// SPDX-License-Identifier: MIT

package shm

import (
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
)

// A borrowed is a region of the peer that this side may reach.
type borrowed = grant.Grant[site]

// A parkedOp waits for the answer to the loan of its region.
type parkedOp struct {
	ticket conn.Ticket
	op     *fabric.Op
}

// maxRefusals bounds how many regions are remembered for the stream; after that all are asked for again.
const maxRefusals = 4096

// initLoans readies both sides of loans.
func (m *mover) initLoans() {
	m.out.Send = m.send
	m.borrower.Out, m.borrower.Parse, m.borrower.Answer, m.borrower.Refusals = &m.out, parseSite, m.answered, maxRefusals
	m.lender.Out, m.lender.Describe = &m.out, describe
}

// describe is what the peer needs to reach a region here.
func describe(mr *util.MR) ([]byte, error) {
	buf := mr.Buffer()
	if buf.Kind != fabric.MemHost { // no process reaches it: the stream does
		return nil, fabric.ErrNotSupported
	}
	return site{buf.Addr, buf.Len, mr.Access()}.encode(), nil
}

// findLoan returns the loan of key that the peer has answered, or takes the op: parked until then, or finished as the mover has stopped.
func (m *mover) findLoan(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) *borrowed {
	l := m.borrower.Find(key)
	if l == nil {
		m.finish(t, m.stopCause())
		return nil
	}
	if l.Ready() {
		return l
	}
	m.mu.Lock()
	cause, ready := m.cause, l.Ready()
	if cause == nil && !ready {
		m.parked[l] = append(m.parked[l], parkedOp{t, op})
	}
	m.mu.Unlock()
	switch {
	case ready:
		return l
	case cause != nil:
		m.finish(t, cause)
	}
	return nil
}

// answered starts what waited, on workers: the stream stands still meanwhile.
func (m *mover) answered(l *borrowed) {
	m.mu.Lock()
	parked := m.parked[l]
	delete(m.parked, l)
	m.mu.Unlock()
	for _, p := range parked {
		switch l.Refused {
		case 0:
			m.start(p.ticket, p.op, l, false)
		case fabric.ErrNotSupported:
			m.ep.HandBack(p.ticket)
			m.ops.Leave()
		default:
			m.finish(p.ticket, m.refusal(l))
		}
	}
}

func (m *mover) refusal(l *borrowed) error {
	return local.OpFault(l.Refused, "region %d of %s", l.Key.ID, m.ep.Peer())
}

func revoked(l *borrowed) error {
	return local.OpFault(fabric.ErrNoKey, "region %d was closed by its owner", l.Key.ID)
}
