// SPDX-License-Identifier: MIT

package loan

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/provider/internal/local"
)

// A Borrower has the peer's regions that this side may reach.
type Borrower[P any] struct {
	Out *Sender
	// Parse reads a place. What it gets is from outside.
	Parse func([]byte) (P, error)

	// What follows may be nil or 0.

	// Answer is called after a loan was answered.
	Answer func(*Loan[P])
	// Over is called before a loan goes back, when nobody uses it any more. It may take long.
	Over func(*Loan[P])
	// GaveUp is closed when accesses that have not ended are not waited for any more; their loans do not go back.
	GaveUp <-chan struct{}
	// Refusals is how many regions are remembered that were refused by ErrNotSupported: they are not asked for again, until there are more,
	// when all are forgotten.
	Refusals int
	// Shares tells that the peer may lend unasked.
	Shares bool

	mu        sync.Mutex
	byKey     map[fabric.RegionKey]*Loan[P]
	byTicket  map[uint64]*Loan[P]
	last      uint64
	refused   int
	stopped   bool
	returning sync.WaitGroup // loans that wait for their users
}

// Find returns the loan of key, which the first one to want it asks the peer for. Nil: stopped.
func (b *Borrower[P]) Find(key fabric.RegionKey) *Loan[P] {
	b.mu.Lock()
	l := b.byKey[key]
	if l != nil || b.stopped {
		b.mu.Unlock()
		return l
	}
	b.last++
	l = b.add(b.last)
	l.Key = key
	b.byKey[key] = l
	b.Out.Post(FrameAsk, encodeAsk(l.ticket, key))
	b.mu.Unlock()
	b.Out.Flush()
	return l
}

// add makes a loan. With mu held.
func (b *Borrower[P]) add(ticket uint64) *Loan[P] {
	if b.byKey == nil {
		b.byKey, b.byTicket = make(map[fabric.RegionKey]*Loan[P]), make(map[uint64]*Loan[P])
	}
	l := &Loan[P]{ticket: ticket, Answered: make(chan struct{})}
	b.byTicket[ticket] = l
	return l
}

// Share is what the peer has lent unasked by this ticket; nil if it has not, or called it in.
func (b *Borrower[P]) Share(ticket uint64) *Loan[P] {
	if ticket&ShareBit == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byTicket[ticket]
}

// OnLend takes the peer's yes, or a share.
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
	l, err := b.lent(ticket)
	if l != nil {
		l.Place = place
		l.answer()
	}
	b.mu.Unlock()
	b.tell(l)
	return err
}

// lent is the loan that the peer's yes is for. With mu held.
func (b *Borrower[P]) lent(ticket uint64) (*Loan[P], error) {
	if ticket&ShareBit == 0 {
		return b.open(ticket)
	}
	switch {
	case b.stopped:
		return nil, nil
	case !b.Shares || b.byTicket[ticket] != nil || len(b.byTicket) >= 2*local.MaxLoans:
		return nil, fmt.Errorf("share %#x lent twice or beyond %d: %w", ticket, 2*local.MaxLoans, fabric.ErrProtocol)
	}
	return b.add(ticket), nil
}

func (b *Borrower[P]) tell(l *Loan[P]) {
	if l != nil && b.Answer != nil {
		b.Answer(l)
	}
}

// OnRefuse takes the peer's no.
func (b *Borrower[P]) OnRefuse(body []byte) error {
	ticket, why, err := parseRefuse(body)
	if err != nil {
		return err
	}
	b.mu.Lock()
	l, err := b.open(ticket)
	if l != nil {
		b.forget(l)
		if l.Refused = why; why == fabric.ErrNotSupported && b.Refusals > 0 {
			b.remember(l)
		}
		l.answer()
	}
	b.mu.Unlock()
	b.tell(l)
	return err
}

// remember keeps a refusal. With mu held.
func (b *Borrower[P]) remember(l *Loan[P]) {
	if b.refused >= b.Refusals {
		for key, old := range b.byKey {
			if old.Ready() && old.Refused != 0 {
				delete(b.byKey, key)
			}
		}
		b.refused = 0
	}
	b.refused++
	b.byKey[l.Key] = l
}

// open is the loan that waits for this answer; nil without an error after Stop. With mu held.
func (b *Borrower[P]) open(ticket uint64) (*Loan[P], error) {
	if b.stopped {
		return nil, nil
	}
	l := b.byTicket[ticket]
	if l == nil || l.Granted() {
		return nil, fmt.Errorf("loan %#x was not asked for: %w", ticket, fabric.ErrProtocol)
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
		return fmt.Errorf("loan %#x revoked, which there is not: %w", ticket, fabric.ErrProtocol)
	}
	b.forget(l)
	b.returning.Add(1)
	b.mu.Unlock()
	empty := l.Use.Shut()
	if b.Over == nil {
		select {
		case <-empty:
			b.giveBack(l, empty)
			return nil
		default:
		}
	}
	go b.giveBack(l, empty) // it ends with the accesses, which the end of the connection ends
	return nil
}

func (b *Borrower[P]) giveBack(l *Loan[P], empty <-chan struct{}) {
	defer b.returning.Done()
	select {
	case <-empty:
	case <-b.GaveUp:
		return
	}
	if b.Over != nil {
		b.Over(l)
	}
	b.Out.Post(FrameReturn, encodeTicket(l.ticket))
	b.Out.Flush()
}

func (b *Borrower[P]) forget(l *Loan[P]) {
	delete(b.byTicket, l.ticket)
	if b.byKey[l.Key] == l {
		delete(b.byKey, l.Key)
	}
}

// Stop has Find answer nil from now on, and frames ignored. It returns the loans that were not called in.
func (b *Borrower[P]) Stop() []*Loan[P] {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	all := make([]*Loan[P], 0, len(b.byTicket))
	for _, l := range b.byTicket {
		all = append(all, l)
	}
	clear(b.byKey)
	clear(b.byTicket)
	return all
}

// Wait waits until what was called in went back, or was given up.
func (b *Borrower[P]) Wait() { b.returning.Wait() }
