// SPDX-License-Identifier: MIT

package local

import (
	"context"
	"fmt"
	"time"

	"mori/core/fabric"
)

// MaxLoans bounds what a peer can make this side remember.
const MaxLoans = 1 << 16

// A Loan is what a peer was told of a region here, until it gives that back.
type Loan struct {
	Ticket, Region uint64
	Writable       bool // the peer may write to the region
	revoked        bool
	returned       chan struct{}
}

// Loans are those of one connection, on the side of the regions. The owner's lock is held in every call.
type Loans struct {
	byTicket map[uint64]*Loan
	byRegion map[uint64]map[uint64]*Loan // region id, ticket
	ended    map[uint64]struct{}         // tickets of the last writable loans that were returned
	order    []uint64                    // the same, a ring once full
	next     int                         // of order: the oldest
	stopped  bool
}

// maxEnded bounds how many returned loans are remembered for the notices of writes under them.
const maxEnded = MaxLoans

// Stopped reports whether Stop was called: nothing is lent then.
func (s *Loans) Stopped() bool { return s.stopped }

// Free reports whether there may be a loan with this ticket.
func (s *Loans) Free(ticket uint64) bool {
	_, twice := s.byTicket[ticket]
	return !twice && len(s.byTicket) < MaxLoans
}

// Lend notes a loan, whose ticket is free.
func (s *Loans) Lend(ticket, region uint64) *Loan {
	if s.byTicket == nil {
		s.byTicket, s.byRegion = make(map[uint64]*Loan), make(map[uint64]map[uint64]*Loan)
	}
	l := &Loan{Ticket: ticket, Region: region, returned: make(chan struct{})}
	s.byTicket[ticket] = l
	if s.byRegion[region] == nil {
		s.byRegion[region] = make(map[uint64]*Loan, 1)
	}
	s.byRegion[region][ticket] = l
	return l
}

// Revoke returns the loans of a region, to be waited for, after tell was called for each that was not revoked before.
func (s *Loans) Revoke(region uint64, tell func(*Loan)) (called []*Loan) {
	for _, l := range s.byRegion[region] {
		if !l.revoked {
			l.revoked = true
			tell(l)
		}
		called = append(called, l)
	}
	return called
}

// Return ends a loan that the peer gives back.
func (s *Loans) Return(ticket uint64) error {
	l := s.byTicket[ticket]
	if s.stopped {
		return nil
	}
	if l == nil || !l.revoked {
		return fmt.Errorf("loan %#x returned, which was not called in: %w", ticket, fabric.ErrProtocol)
	}
	s.drop(l)
	return nil
}

// MayWrite reports whether the peer has, or had, the loan with this ticket, of a region that it
// may write to. It got one only for the key of the region. The notice of a write may come after
// the region was closed and its loan returned.
func (s *Loans) MayWrite(ticket uint64) bool {
	_, ended := s.ended[ticket]
	l := s.byTicket[ticket]
	return ended || l != nil && l.Writable
}

func (s *Loans) drop(l *Loan) {
	close(l.returned)
	delete(s.byTicket, l.Ticket)
	delete(s.byRegion[l.Region], l.Ticket)
	if len(s.byRegion[l.Region]) == 0 {
		delete(s.byRegion, l.Region)
	}
	if !l.Writable {
		return
	}
	if s.ended == nil {
		s.ended = make(map[uint64]struct{})
	}
	s.ended[l.Ticket] = struct{}{}
	if len(s.order) < maxEnded {
		s.order = append(s.order, l.Ticket)
		return
	}
	delete(s.ended, s.order[s.next])
	s.order[s.next] = l.Ticket
	s.next = (s.next + 1) % maxEnded
}

// Stop ends all loans, once the fence holds the peer off. MayWrite stays as it is.
func (s *Loans) Stop() {
	if s.stopped {
		return
	}
	s.stopped = true
	for _, l := range s.byTicket {
		close(l.returned)
	}
	clear(s.byRegion)
}

// A Recall is what was called in of one connection.
type Recall struct {
	From interface {
		Fail(err error) // ends the connection, and with it all its loans in bounded time
		Peer() fabric.Addr
	}
	Loans []*Loan
}

// AwaitReturns returns when nobody can touch what was called in any more: the loans came back, or their connections have ended. Who does not
// answer within the time is disconnected; its fence then holds.
func AwaitReturns(all []Recall, within time.Duration) {
	late, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for _, r := range all {
		for _, l := range r.Loans {
			select {
			case <-l.returned:
				continue
			case <-late.Done():
			}
			r.From.Fail(fmt.Errorf("%s did not return region %d within %v: %w", r.From.Peer(), l.Region, within, fabric.ErrTimeout))
			<-l.returned // Stop ends all loans, in bounded time
		}
	}
}
