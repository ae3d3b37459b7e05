// SPDX-License-Identifier: MIT

package grant

import (
	"context"
	"fmt"
	"time"

	"mori/core/fabric"
)

// MaxGrants bounds what a peer can make this side remember.
const MaxGrants = 1 << 16

// An Issued is one grant as the granter knows it, from Issue to Return.
type Issued struct {
	Ticket, Region uint64
	Writable       bool // the peer may write to the region
	revoked        bool
	returned       chan struct{}
}

// A Ledger has the grants that one connection has issued. The owner's lock is held in every call.
type Ledger struct {
	byTicket map[uint64]*Issued
	byRegion map[uint64]map[uint64]*Issued // region id, ticket
	ended    map[uint64]struct{}           // tickets of the last writable grants that were returned
	order    []uint64                      // the same, a ring once full
	next     int                           // of order: the oldest
	stopped  bool
}

// maxEnded bounds how many returned grants are remembered for the notices of writes under them.
const maxEnded = MaxGrants

// Stopped reports whether Stop was called: nothing is granted then.
func (s *Ledger) Stopped() bool { return s.stopped }

// Free reports whether a grant may be issued by this ticket.
func (s *Ledger) Free(ticket uint64) bool {
	_, twice := s.byTicket[ticket]
	return !twice && len(s.byTicket) < MaxGrants
}

// Issue notes a grant, whose ticket is free.
func (s *Ledger) Issue(ticket, region uint64) *Issued {
	if s.byTicket == nil {
		s.byTicket, s.byRegion = make(map[uint64]*Issued), make(map[uint64]map[uint64]*Issued)
	}
	l := &Issued{Ticket: ticket, Region: region, returned: make(chan struct{})}
	s.byTicket[ticket] = l
	if s.byRegion[region] == nil {
		s.byRegion[region] = make(map[uint64]*Issued, 1)
	}
	s.byRegion[region][ticket] = l
	return l
}

// Revoke returns the grants of a region, for AwaitReturns. It calls notify for each that was not
// revoked before.
func (s *Ledger) Revoke(region uint64, notify func(*Issued)) (revoked []*Issued) {
	for _, l := range s.byRegion[region] {
		if !l.revoked {
			l.revoked = true
			notify(l)
		}
		revoked = append(revoked, l)
	}
	return revoked
}

// Return ends a grant that the peer returns.
func (s *Ledger) Return(ticket uint64) error {
	l := s.byTicket[ticket]
	if s.stopped {
		return nil
	}
	if l == nil || !l.revoked {
		return fmt.Errorf("grant %#x was returned without being revoked: %w", ticket, fabric.ErrProtocol)
	}
	s.drop(l)
	return nil
}

// MayWrite reports whether the peer has, or had, the grant with this ticket, of a region that it
// may write to. It got one only for the key of the region. The notice of a write may come after
// the region was closed and its grant returned.
func (s *Ledger) MayWrite(ticket uint64) bool {
	_, ended := s.ended[ticket]
	l := s.byTicket[ticket]
	return ended || l != nil && l.Writable
}

func (s *Ledger) drop(l *Issued) {
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

// Stop ends all grants, once the peer can reach nothing any more. MayWrite stays as it is.
func (s *Ledger) Stop() {
	if s.stopped {
		return
	}
	s.stopped = true
	for _, l := range s.byTicket {
		close(l.returned)
	}
	clear(s.byRegion)
}

// A Revocation is what was revoked of one connection.
type Revocation struct {
	From interface {
		Fail(err error) // ends the connection, and with it all its grants in bounded time
		Peer() fabric.Addr
	}
	Grants []*Issued
}

// AwaitReturns returns when nobody can reach what was revoked any more: the grants came back, or
// their connections have ended. It disconnects a peer that does not answer within the time.
func AwaitReturns(all []Revocation, within time.Duration) {
	late, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for _, r := range all {
		for _, l := range r.Grants {
			select {
			case <-l.returned:
				continue
			case <-late.Done():
			}
			r.From.Fail(fmt.Errorf("%s did not return region %d within %v: %w", r.From.Peer(), l.Region, within, fabric.ErrTimeout))
			<-l.returned // Stop ends all grants, in bounded time
		}
	}
}
