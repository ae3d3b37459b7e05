// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/internal/local"
)

// A loan is the right to copy from or to one region of the peer.
//
//	asked ──frameLend──▶ granted ──frameRevoke──▶ returned
//	   └───frameRefuse──▶ gone
//
// A share begins granted.
type loan struct {
	ticket uint64
	key    fabric.RegionKey // of what was asked for

	// Set before answered closes.
	answered chan struct{}
	place    place
	refused  fabric.Errno

	nearest atomic.Pointer[device.Device]

	use local.Gate // copies, and openings, under it

	opening sync.Mutex
	opened  atomic.Pointer[[]mapping] // one for each device that was asked to reach the place
}

// granted reports whether the peer has said yes.
func (l *loan) granted() bool {
	select {
	case <-l.answered:
		return l.refused == 0
	default:
		return false
	}
}

// near is place.near, asked once.
func (l *loan) near() (*device.Device, error) {
	if d := l.nearest.Load(); d != nil {
		return d, nil
	}
	d, err := l.place.near()
	if err == nil {
		l.nearest.Store(d)
	}
	return d, err
}

// mapped is the loan's place as d sees it, if that was found out.
func (l *loan) mapped(d *device.Device) (mapping, bool) {
	if all := l.opened.Load(); all != nil {
		for _, m := range *all {
			if m.dev == d {
				return m, true
			}
		}
	}
	return mapping{}, false
}

// open is mapped, finding it out. It may take the time of a driver's call, and the caller is inside use.
func (l *loan) open(d *device.Device, sameProcess bool) mapping {
	l.opening.Lock()
	defer l.opening.Unlock()
	if m, ok := l.mapped(d); ok {
		return m
	}
	m := l.place.open(d, sameProcess)
	var all []mapping
	if old := l.opened.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, m)
	l.opened.Store(&all)
	return m
}

// close gives back what was opened. Nobody is inside use any more.
func (l *loan) close() error {
	l.opening.Lock()
	defer l.opening.Unlock()
	all := l.opened.Swap(nil)
	if all == nil {
		return nil
	}
	var errs []error
	for _, m := range *all {
		if m.undo != nil {
			errs = append(errs, m.undo())
		}
	}
	return errors.Join(errs...)
}

// check holds op against what was lent: rights, then bounds.
func (l *loan) check(op *fabric.Op) error {
	want := fabric.AccessRemoteRead
	if op.Kind == fabric.OpWrite {
		want = fabric.AccessRemoteWrite
	}
	if l.place.access&want == 0 {
		return local.OpFault(fabric.ErrAccess, "region %d", l.key.ID)
	}
	if err := l.inside(&op.RSeg); err != nil {
		return err
	}
	for i := range op.RMore {
		if err := l.inside(&op.RMore[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l *loan) inside(r *fabric.RSeg) error {
	if r.Addr > l.place.size || r.Len > l.place.size-r.Addr {
		return local.OpFault(fabric.ErrRange, "%d bytes at %#x of region %d, which has %d", r.Len, r.Addr, l.key.ID, l.place.size)
	}
	return nil
}

// borrower has the peer's regions that this side may touch.
type borrower struct {
	mu      sync.Mutex
	byKey   map[fabric.RegionKey]*loan
	byTick  map[uint64]*loan // asked for, until revoked or refused; and shares
	last    uint64           // ticket
	stopped bool

	returning sync.WaitGroup // loans that are being given back
}

// loanOf returns the loan of key. The first one to want it asks the peer. Nil: stopped.
func (m *mover) loanOf(key fabric.RegionKey) *loan {
	b := &m.borrower
	if l := b.find(key); l != nil {
		return l
	}
	defer m.flush()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil
	}
	l := b.byKey[key]
	if l == nil {
		b.last++
		l = &loan{ticket: b.last, key: key, answered: make(chan struct{})}
		b.byKey[key], b.byTick[l.ticket] = l, l
		m.post(frameAsk, askFrame{l.ticket, key}.encode())
	}
	return l
}

func (b *borrower) find(key fabric.RegionKey) *loan {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil
	}
	return b.byKey[key]
}

// share is what the peer has lent unasked.
func (m *mover) share(ticket uint64) *loan {
	b := &m.borrower
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byTick[ticket]
}

func (m *mover) onLend(body []byte) error {
	f, err := parseLend(body)
	if err != nil {
		return err
	}
	b := &m.borrower
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byTick[f.ticket]
	switch {
	case b.stopped:
		return nil
	case f.ticket&shareBit != 0 && l == nil && len(b.byTick) < 2*local.MaxLoans:
		l = &loan{ticket: f.ticket, answered: make(chan struct{})}
		b.byTick[f.ticket] = l
	case f.ticket&shareBit != 0 || l == nil || l.granted():
		return fmt.Errorf("loan %#x was not asked for: %w", f.ticket, fabric.ErrProtocol)
	}
	l.place = f.place
	close(l.answered)
	return nil
}

func (m *mover) onRefuse(body []byte) error {
	f, err := parseRefuse(body)
	if err != nil {
		return err
	}
	b := &m.borrower
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byTick[f.ticket]
	if b.stopped {
		return nil
	}
	if l == nil || l.granted() {
		return fmt.Errorf("refusal of loan %#x, which was not asked for: %w", f.ticket, fabric.ErrProtocol)
	}
	b.forget(l)
	l.refused = f.err
	close(l.answered)
	return nil
}

// onRevoke gives a loan back when the copies under it are done.
func (m *mover) onRevoke(body []byte) error {
	ticket, err := parseTicket(body)
	if err != nil {
		return err
	}
	b := &m.borrower
	b.mu.Lock()
	l := b.byTick[ticket]
	if b.stopped {
		b.mu.Unlock()
		return nil
	}
	if l == nil || !l.granted() {
		b.mu.Unlock()
		return fmt.Errorf("loan %#x revoked, which there is not: %w", ticket, fabric.ErrProtocol)
	}
	b.forget(l)
	b.returning.Add(1)
	b.mu.Unlock()
	empty := l.use.Shut()
	go func() {
		defer b.returning.Done()
		select {
		case <-empty:
		case <-m.gaveUp: // what a copy may still touch stays mapped
			return
		}
		if err := l.close(); err != nil {
			m.log.Warn("p2p: give back what was opened of a peer's region", "peer", m.ep.Peer(), "error", err)
		}
		m.post(frameReturn, encodeTicket(ticket))
		m.flush()
	}()
	return nil
}

// forget takes l out of the tables. With mu held.
func (b *borrower) forget(l *loan) {
	delete(b.byTick, l.ticket)
	if b.byKey[l.key] == l {
		delete(b.byKey, l.key)
	}
}
