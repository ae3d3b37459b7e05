// SPDX-License-Identifier: MIT

package loan

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/provider/internal/local"
)

// A Loan is the right to reach one region of the peer.
//
//	asked ──lend──▶ granted ──revoke──▶ returned
//	   └───refuse──▶ gone
type Loan[P any] struct {
	Key fabric.RegionKey

	// Set before Answered closes.
	Answered chan struct{}
	Place    P
	Refused  fabric.Errno // 0: granted

	Use local.Gate // accesses under it

	ticket uint64
}

// Granted reports whether the peer has said yes.
func (l *Loan[P]) Granted() bool {
	select {
	case <-l.Answered:
		return l.Refused == 0
	default:
		return false
	}
}

// A Borrower has the peer's regions that this side may reach.
type Borrower[P any] struct {
	// Parse reads a place. What it gets is from outside.
	Parse func([]byte) (P, error)
	// Send sends a frame and does not wait.
	Send func(kind uint8, body []byte)

	mu       sync.Mutex
	byKey    map[fabric.RegionKey]*Loan[P]
	byTicket map[uint64]*Loan[P]
	last     uint64
	stopped  bool
}

// Find returns the loan of key, which the first one to want it asks the peer for. Nil: stopped.
func (b *Borrower[P]) Find(key fabric.RegionKey) *Loan[P] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil
	}
	l := b.byKey[key]
	if l == nil {
		if b.byKey == nil {
			b.byKey, b.byTicket = make(map[fabric.RegionKey]*Loan[P]), make(map[uint64]*Loan[P])
		}
		b.last++
		l = &Loan[P]{Key: key, ticket: b.last, Answered: make(chan struct{})}
		b.byKey[key], b.byTicket[l.ticket] = l, l
		b.Send(FrameAsk, encodeAsk(l.ticket, key))
	}
	return l
}

// OnLend takes the peer's yes.
func (b *Borrower[P]) OnLend(body []byte) error {
	ticket, raw, err := parseLend(body)
	if err != nil {
		return err
	}
	place, err := b.Parse(raw)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l, err := b.open(ticket)
	if l != nil {
		l.Place = place
		close(l.Answered)
	}
	return err
}

// OnRefuse takes the peer's no.
func (b *Borrower[P]) OnRefuse(body []byte) error {
	ticket, why, err := parseRefuse(body)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l, err := b.open(ticket)
	if l != nil {
		b.forget(l)
		l.Refused = why
		close(l.Answered)
	}
	return err
}

// open is the loan that waits for this answer; nil without an error after Stop. With mu held.
func (b *Borrower[P]) open(ticket uint64) (*Loan[P], error) {
	if b.stopped {
		return nil, nil
	}
	l := b.byTicket[ticket]
	if l == nil || l.Granted() {
		return nil, fmt.Errorf("loan %d was not asked for: %w", ticket, fabric.ErrProtocol)
	}
	return l, nil
}

// OnRevoke gives a loan back once the accesses under it have ended.
func (b *Borrower[P]) OnRevoke(body []byte) error {
	ticket, err := parseTicket("revoke", body)
	if err != nil {
		return err
	}
	b.mu.Lock()
	l := b.byTicket[ticket]
	switch {
	case b.stopped:
		b.mu.Unlock()
		return nil
	case l == nil || !l.Granted():
		b.mu.Unlock()
		return fmt.Errorf("loan %d revoked, which there is not: %w", ticket, fabric.ErrProtocol)
	}
	b.forget(l)
	b.mu.Unlock()
	empty := l.Use.Shut()
	select {
	case <-empty:
		b.Send(FrameReturn, encodeTicket(ticket))
	default:
		go func() { // it ends with the accesses, which the end of the connection ends
			<-empty
			b.Send(FrameReturn, encodeTicket(ticket))
		}()
	}
	return nil
}

func (b *Borrower[P]) forget(l *Loan[P]) {
	delete(b.byTicket, l.ticket)
	if b.byKey[l.Key] == l {
		delete(b.byKey, l.Key)
	}
}

// Stop has Find answer nil from now on, and frames ignored.
func (b *Borrower[P]) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	clear(b.byKey)
	clear(b.byTicket)
}
