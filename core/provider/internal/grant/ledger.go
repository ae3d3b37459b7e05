// SPDX-License-Identifier: MIT

package grant

import (
	"context"
	"fmt"
	"time"

	"mori/core/fabric"
)

// MaxGrants bounds how many grants a peer can make this side remember.
const MaxGrants = 1 << 16

// An Issued is the granter's record of one grant, from Issue to Return.
type Issued struct {
	Ticket, Region uint64
	Writable       bool // the peer may write to the region
	revoked        bool
	returned       chan struct{}
}

// A Ledger holds the grants that one connection has issued. Every call needs the owner's lock.
type Ledger struct {
	byTicket map[uint64]*Issued
	byRegion map[uint64]map[uint64]*Issued // by region id, then by ticket
	ended    map[uint64]struct{}           // tickets of the last writable grants that were returned
	order    []uint64                      // the same tickets; a ring once full
	next     int                           // index of the oldest in order
	stopped  bool
}

// maxEnded bounds how many returned grants are remembered, for the notices of writes under them.
const maxEnded = MaxGrants

// Stopped reports whether Stop was called. Nothing is granted after that.
func (s *Ledger) Stopped() bool { return s.stopped }

// Free reports whether a grant may be issued with this ticket.
func (s *Ledger) Free(ticket uint64) bool {
	_, twice := s.byTicket[ticket]
	return !twice && len(s.byTicket) < MaxGrants
}

// Issue records a grant. Its ticket must be free.
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

// Revoke returns the grants of a region, for AwaitReturns. It calls notify for each one that was
// not revoked before.
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

// Return ends a grant that the peer has returned.
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

// MayWrite reports whether the peer has or had the grant with this ticket, for a region that it may
// write to. The peer gets a grant only for the region's key. The notice of a write may arrive after
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

// Stop ends all grants. Call it once the peer can no longer access anything. MayWrite keeps its
// answers.
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

// A Revocation lists the revoked grants of one connection.
type Revocation struct {
	From interface {
		Fail(err error) // ends the connection, which ends all its grants in bounded time
		Peer() fabric.Addr
	}
	Grants []*Issued
}

// AwaitReturns returns when no peer can access the revoked regions any more: the grants were
// returned, or their connections have ended. It disconnects a peer that does not return a grant
// within the time.
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
