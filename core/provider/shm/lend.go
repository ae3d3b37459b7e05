// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/local"
)

// A lender is the target's side of loans: who was told where which region is.
type lender struct {
	table *util.MRTable

	mu    sync.Mutex
	loans local.Loans
}

// onAsk answers at once. The table is asked with mu held, so that a region that closes meanwhile is either refused here or
// found by revoke.
func (m *mover) onAsk(body []byte) error {
	f, err := parseAsk(body)
	if err != nil {
		return err
	}
	d := &m.lender
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loans.Stopped() {
		return nil
	}
	if !d.loans.Free(f.ticket) {
		return fmt.Errorf("loan %d asked for twice or beyond %d loans: %w", f.ticket, local.MaxLoans, fabric.ErrProtocol)
	}
	region, err := d.table.Acquire(f.key, 0)
	if err != nil {
		m.send(frameRefuse, refuseFrame{f.ticket, fabric.ErrnoOf(err)}.encode())
		return nil
	}
	defer region.Release()
	if region.Buffer().Kind != fabric.MemHost { // no process reaches it: the stream does
		m.send(frameRefuse, refuseFrame{f.ticket, fabric.ErrNotSupported}.encode())
		return nil
	}
	d.loans.Lend(f.ticket, f.key.ID)
	buf := region.Buffer()
	m.send(frameLend, lendFrame{f.ticket, buf.Addr, buf.Len, region.Access()}.encode())
	return nil
}

// revoke calls the loans of a region in and returns them, to be waited for.
func (m *mover) revoke(region uint64) []*local.Loan {
	m.lender.mu.Lock()
	defer m.lender.mu.Unlock()
	return m.lender.loans.Revoke(region, func(l *local.Loan) { m.send(frameRevoke, encodeTicket(l.Ticket)) })
}

func (m *mover) onReturn(body []byte) error {
	ticket, err := parseTicket(body)
	if err != nil {
		return err
	}
	m.lender.mu.Lock()
	defer m.lender.mu.Unlock()
	return m.lender.loans.Return(ticket)
}

// stop ends all loans, once the fence holds the peer off.
func (d *lender) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loans.Stop()
}
