// SPDX-License-Identifier: MIT

package grant

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
)

// A Granter is the target's side: it records which regions the peer may access.
type Granter struct {
	Table *regions.Table
	// Describe returns what the peer needs to access a region. The region stays open in the
	// meantime. Describe may block. The Errno of its error is sent as the refusal; ErrNotSupported
	// says that the region is accessed by another path.
	Describe func(mr *regions.MR) ([]byte, error)
	Out      *Sender

	mu         sync.Mutex
	issued     Ledger                    // includes shares
	requested  map[uint64]struct{}       // tickets that are being answered
	shares     map[fabric.MRDesc]*Issued // shares that are not revoked
	last       uint64                    // the last share's number
	describing sync.WaitGroup
}

// OnRequest checks a request and answers it from a new goroutine.
func (g *Granter) OnRequest(body []byte) error {
	ticket, key, err := parseRequest(body)
	if err != nil {
		return err
	}
	defer g.Out.Flush()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.issued.Stopped() {
		return nil
	}
	if _, twice := g.requested[ticket]; twice || ticket&ShareBit != 0 || !g.issued.Free(ticket) || len(g.requested) >= MaxGrants {
		return fmt.Errorf("grant %#x requested twice or beyond %d grants: %w", ticket, MaxGrants, fabric.ErrProtocol)
	}
	region, err := g.Table.Acquire(key, 0)
	if err != nil {
		g.Out.Post(FrameRefuse, encodeRefuse(ticket, fabric.ErrnoOf(err)))
		return nil
	}
	if g.requested == nil {
		g.requested = make(map[uint64]struct{})
	}
	g.requested[ticket] = struct{}{}
	g.describing.Add(1)
	go g.answer(ticket, region)
	return nil
}

func (g *Granter) answer(ticket uint64, region *regions.MR) {
	defer g.describing.Done()
	defer region.Release()
	place, err := g.Describe(region)
	defer g.Out.Flush()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.requested, ticket)
	if g.issued.Stopped() {
		return
	}
	if err == nil {
		// A region that is being closed is either refused here or found by Revoke: Revoke takes the
		// same lock after the table refuses the region.
		var again *regions.MR
		if again, err = g.Table.Acquire(region.Key(), 0); err == nil {
			defer again.Release()
		}
	}
	if err != nil {
		g.Out.Post(FrameRefuse, encodeRefuse(ticket, fabric.ErrnoOf(err)))
		return
	}
	g.issued.Issue(ticket, region.Key().ID).Writable = region.Access()&fabric.AccessRemoteWrite != 0
	g.Out.Post(FrameGrant, encodeGrant(ticket, place))
}

// MayWrite reports whether the peer has or had a grant with this ticket that allows writes. The
// peer has then shown the key of the region. Remote data of a write without such a grant is forged.
func (g *Granter) MayWrite(ticket uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return ticket&ShareBit == 0 && g.issued.MayWrite(ticket)
}

// Shared returns the share of a region of device memory, or nil if it is not shared.
func (g *Granter) Shared(desc fabric.MRDesc) *Issued {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shares[desc]
}

// Share returns the share of a region, and grants the first one if needed. place describes where
// the region is. The caller holds the region open. An error wraps ErrNotSupported.
func (g *Granter) Share(mr *regions.MR, place []byte) (*Issued, error) {
	defer g.Out.Flush()
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.shares[mr.Desc()]; l != nil {
		return l, nil
	}
	ticket := (g.last + 1) | ShareBit
	again := g.Table.Device(mr.Desc()) // a closing region is not found here, or Revoke finds it
	if again == nil {
		return nil, fmt.Errorf("region %d is being closed: %w", mr.Key().ID, fabric.ErrNotSupported)
	}
	defer again.Release()
	if g.issued.Stopped() || !g.issued.Free(ticket) {
		return nil, fmt.Errorf("share region %d at the end of the connection, or beyond %d grants: %w", mr.Key().ID, MaxGrants, fabric.ErrNotSupported)
	}
	if g.shares == nil {
		g.shares = make(map[fabric.MRDesc]*Issued)
	}
	g.last++
	l := g.issued.Issue(ticket, mr.Key().ID)
	g.shares[mr.Desc()] = l
	g.Out.Post(FrameGrant, encodeGrant(ticket, place))
	return l, nil
}

// Revoke revokes the grants of a region and returns them, for AwaitReturns.
func (g *Granter) Revoke(region uint64) []*Issued {
	defer g.Out.Flush()
	g.mu.Lock()
	defer g.mu.Unlock()
	for desc, l := range g.shares {
		if l.Region == region {
			delete(g.shares, desc)
		}
	}
	return g.issued.Revoke(region, func(l *Issued) { g.Out.Post(FrameRevoke, encodeTicket(l.Ticket)) })
}

// OnReturn ends a grant that the peer has returned.
func (g *Granter) OnReturn(body []byte) error {
	ticket, err := parseTicket("return", body)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.issued.Return(ticket)
}

// Stop ends all grants and waits for Describe. Call it once the peer can no longer access anything.
func (g *Granter) Stop() {
	g.mu.Lock()
	clear(g.shares)
	g.issued.Stop()
	g.mu.Unlock()
	g.describing.Wait()
}
