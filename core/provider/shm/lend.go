// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// maxLent bounds what a peer can make this side remember.
const maxLent = 1 << 16

// A lender is the target's side of loans: who was told where which region is.
type lender struct {
	table *util.MRTable

	mu       sync.Mutex
	byTicket map[uint64]*lent
	byRegion map[uint64]map[uint64]*lent // region id, ticket
	stopped  bool
}

type lent struct {
	ticket, region uint64
	revoked        bool
	returned       chan struct{}
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
	if d.stopped {
		return nil
	}
	if _, twice := d.byTicket[f.ticket]; twice || len(d.byTicket) >= maxLent {
		return fmt.Errorf("loan %d asked for twice or beyond %d loans: %w", f.ticket, maxLent, fabric.ErrProtocol)
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
	l := &lent{ticket: f.ticket, region: f.key.ID, returned: make(chan struct{})}
	d.byTicket[l.ticket] = l
	if d.byRegion[l.region] == nil {
		d.byRegion[l.region] = make(map[uint64]*lent, 1)
	}
	d.byRegion[l.region][l.ticket] = l
	buf := region.Buffer()
	m.send(frameLend, lendFrame{l.ticket, buf.Addr, buf.Len, region.Access()}.encode())
	return nil
}

// revoke calls the loans of a region in and returns them, to be waited for.
func (m *mover) revoke(region uint64) (called []*lent) {
	d := &m.lender
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.byRegion[region] {
		if !l.revoked {
			l.revoked = true
			m.send(frameRevoke, encodeTicket(l.ticket))
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
		return fmt.Errorf("loan %d returned, which was not called in: %w", ticket, fabric.ErrProtocol)
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
	for _, l := range d.byTicket {
		d.drop(l)
	}
}
