// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// maxLent bounds what a peer can make this side remember.
const maxLent = 1 << 16

// A lender is the owner's side of loans and shares: who was told where which region is.
type lender struct {
	table *util.MRTable

	mu       sync.Mutex
	byTicket map[uint64]*lent
	byRegion map[uint64]map[uint64]*lent // region id, ticket
	shares   map[fabric.MRDesc]*lent     // not revoked
	last     uint64                      // ticket of a share
	stopped  bool
}

type lent struct {
	ticket, region uint64
	desc           fabric.MRDesc // of a share
	base, size     uint64        // of a share
	revoked        bool
	returned       chan struct{}
}

func newLender(table *util.MRTable) lender {
	return lender{table: table, byTicket: make(map[uint64]*lent), byRegion: make(map[uint64]map[uint64]*lent), shares: make(map[fabric.MRDesc]*lent)}
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
	if d.stopped {
		return nil
	}
	if _, twice := d.byTicket[f.ticket]; twice || f.ticket&shareBit != 0 || len(d.byTicket) >= maxLent {
		return fmt.Errorf("loan %#x asked for twice or beyond %d loans: %w", f.ticket, maxLent, fabric.ErrProtocol)
	}
	region, err := d.table.Acquire(f.key, 0)
	if err != nil {
		m.post(frameRefuse, refuseFrame{f.ticket, fabric.ErrnoOf(err)}.encode())
		return nil
	}
	defer region.Release()
	d.lend(&lent{ticket: f.ticket, region: f.key.ID})
	m.post(frameLend, lendFrame{f.ticket, describe(region, m.greet.same)}.encode())
	return nil
}

// lend notes what the peer is told. With mu held.
func (d *lender) lend(l *lent) {
	l.returned = make(chan struct{})
	d.byTicket[l.ticket] = l
	if d.byRegion[l.region] == nil {
		d.byRegion[l.region] = make(map[uint64]*lent, 1)
	}
	d.byRegion[l.region][l.ticket] = l
}

// shareOf is the share of a region of device memory that the caller holds open, lent now if it was not. It is an error that wraps
// ErrNotSupported if there cannot be one.
func (m *mover) shareOf(mr *util.MR) (*lent, error) {
	defer m.flush()
	d := &m.lender
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.shares[mr.Desc()]; l != nil {
		return l, nil
	}
	again := d.table.Device(mr.Desc())
	if again == nil || d.stopped || len(d.byTicket) >= maxLent {
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
	l := &lent{ticket: d.last | shareBit, region: mr.Key().ID, desc: mr.Desc(), base: p.addr, size: p.size}
	d.lend(l)
	d.shares[l.desc] = l
	m.post(frameLend, lendFrame{l.ticket, p}.encode())
	return l, nil
}

// sharedAlready is shareOf that neither lends nor asks a driver.
func (m *mover) sharedAlready(desc fabric.MRDesc) *lent {
	m.lender.mu.Lock()
	defer m.lender.mu.Unlock()
	return m.lender.shares[desc]
}

// revoke calls the loans of a region in and returns them, to be waited for.
func (m *mover) revoke(region uint64) (called []*lent) {
	defer m.flush()
	d := &m.lender
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.byRegion[region] {
		if !l.revoked {
			l.revoked = true
			if d.shares[l.desc] == l {
				delete(d.shares, l.desc)
			}
			m.post(frameRevoke, encodeTicket(l.ticket))
		}
		called = append(called, l)
	}
	return called
}

func (m *mover) onReturn(body []byte) error {
	ticket, err := parseTicket(body)
	if err != nil {
		return err
	}
	d := &m.lender
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.byTicket[ticket]
	if l == nil || !l.revoked {
		if d.stopped {
			return nil
		}
		return fmt.Errorf("loan %#x returned, which was not called in: %w", ticket, fabric.ErrProtocol)
	}
	d.drop(l)
	return nil
}

// drop forgets l. With mu held.
func (d *lender) drop(l *lent) {
	close(l.returned)
	delete(d.byTicket, l.ticket)
	delete(d.byRegion[l.region], l.ticket)
	if len(d.byRegion[l.region]) == 0 {
		delete(d.byRegion, l.region)
	}
}

// stop ends all loans, once the fence holds the peer off.
func (d *lender) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	clear(d.shares)
	for _, l := range d.byTicket {
		d.drop(l)
	}
}
