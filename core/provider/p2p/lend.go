// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/local"
)

// A lender is the owner's side of loans and shares: who was told where which region is.
type lender struct {
	table *util.MRTable

	mu     sync.Mutex
	loans  local.Loans              // and shares
	shares map[fabric.MRDesc]*share // not revoked
	last   uint64                   // ticket of a share
}

// A share is a loan of device memory that nobody has asked for.
type share struct {
	*local.Loan
	base, size uint64
}

func newLender(table *util.MRTable) lender {
	return lender{table: table, shares: make(map[fabric.MRDesc]*share)}
}

// onAsk answers at once. The table is asked with mu held, so that a region that closes meanwhile is either refused here or
// found by revoke.
func (m *mover) onAsk(body []byte) error {
	defer m.flush()
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
	if !d.loans.Free(f.ticket) || f.ticket&shareBit != 0 {
		return fmt.Errorf("loan %#x asked for twice or beyond %d loans: %w", f.ticket, local.MaxLoans, fabric.ErrProtocol)
	}
	region, err := d.table.Acquire(f.key, 0)
	if err != nil {
		m.post(frameRefuse, refuseFrame{f.ticket, fabric.ErrnoOf(err)}.encode())
		return nil
	}
	defer region.Release()
	d.loans.Lend(f.ticket, f.key.ID)
	m.post(frameLend, lendFrame{f.ticket, describe(region, m.greet.same)}.encode())
	return nil
}

// shareOf is the share of a region of device memory that the caller holds open, lent now if it was not. It is an error that wraps
// ErrNotSupported if there cannot be one.
func (m *mover) shareOf(mr *util.MR) (*share, error) {
	defer m.flush()
	d := &m.lender
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.shares[mr.Desc()]; l != nil {
		return l, nil
	}
	ticket := (d.last + 1) | shareBit
	again := d.table.Device(mr.Desc())
	if again == nil || d.loans.Stopped() || !d.loans.Free(ticket) {
		if again != nil {
			again.Release()
		}
		return nil, fmt.Errorf("region %d is being closed: %w", mr.Key().ID, fabric.ErrNotSupported)
	}
	defer again.Release()
	p := describe(mr, false)
	if !p.exported() {
		return nil, fmt.Errorf("export region %d: %s: %w", mr.Key().ID, p.why, fabric.ErrNotSupported)
	}
	d.last++
	l := &share{d.loans.Lend(ticket, mr.Key().ID), p.addr, p.size}
	d.shares[mr.Desc()] = l
	m.post(frameLend, lendFrame{ticket, p}.encode())
	return l, nil
}

// sharedAlready is shareOf that neither lends nor asks a driver.
func (m *mover) sharedAlready(desc fabric.MRDesc) *share {
	m.lender.mu.Lock()
	defer m.lender.mu.Unlock()
	return m.lender.shares[desc]
}

// revoke calls the loans of a region in and returns them, to be waited for.
func (m *mover) revoke(region uint64) []*local.Loan {
	defer m.flush()
	d := &m.lender
	d.mu.Lock()
	defer d.mu.Unlock()
	for desc, l := range d.shares {
		if l.Region == region {
			delete(d.shares, desc)
		}
	}
	return d.loans.Revoke(region, func(l *local.Loan) { m.post(frameRevoke, encodeTicket(l.Ticket)) })
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
	clear(d.shares)
	d.loans.Stop()
}
