// SPDX-License-Identifier: MIT

package loan

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/local"
)

// A Lender is the target's side: who was told where which region is.
type Lender struct {
	Table *util.MRTable
	// Describe is what the peer needs to reach a region, which stays open meanwhile. It may take long. Its error's Errno is the
	// refusal; ErrNotSupported says that the region is to be reached in another way.
	Describe func(mr *util.MR) ([]byte, error)
	Out      *Sender

	mu     sync.Mutex
	loans  local.Loans                   // and shares
	asked  map[uint64]struct{}           // tickets that are being answered
	shares map[fabric.MRDesc]*local.Loan // not revoked
	last   uint64                        // share
	asking sync.WaitGroup
}

// OnAsk checks a claim, and answers it from a goroutine of its own.
func (d *Lender) OnAsk(body []byte) error {
	ticket, key, err := parseAsk(body)
	if err != nil {
		return err
	}
	defer d.Out.Flush()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loans.Stopped() {
		return nil
	}
	if _, twice := d.asked[ticket]; twice || ticket&ShareBit != 0 || !d.loans.Free(ticket) || len(d.asked) >= local.MaxLoans {
		return fmt.Errorf("loan %#x asked for twice or beyond %d loans: %w", ticket, local.MaxLoans, fabric.ErrProtocol)
	}
	region, err := d.Table.Acquire(key, 0)
	if err != nil {
		d.Out.Post(FrameRefuse, encodeRefuse(ticket, fabric.ErrnoOf(err)))
		return nil
	}
	if d.asked == nil {
		d.asked = make(map[uint64]struct{})
	}
	d.asked[ticket] = struct{}{}
	d.asking.Add(1)
	go d.answer(ticket, region)
	return nil
}

func (d *Lender) answer(ticket uint64, region *util.MR) {
	defer d.asking.Done()
	defer region.Release()
	place, err := d.Describe(region)
	defer d.Out.Flush()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.asked, ticket)
	if d.loans.Stopped() {
		return
	}
	if err == nil {
		// A region that is being closed is refused here, or found by Revoke: that takes the same lock after the table refuses.
		var again *util.MR
		if again, err = d.Table.Acquire(region.Key(), 0); err == nil {
			defer again.Release()
		}
	}
	if err != nil {
		d.Out.Post(FrameRefuse, encodeRefuse(ticket, fabric.ErrnoOf(err)))
		return
	}
	d.loans.Lend(ticket, region.Key().ID).Writable = region.Access()&fabric.AccessRemoteWrite != 0
	d.Out.Post(FrameLend, encodeLend(ticket, place))
}

// MayWrite reports whether the peer has, or had, a loan with this ticket by which it could write:
// it has shown the key of the region. Remote data of a write under no such loan is a lie.
func (d *Lender) MayWrite(ticket uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return ticket&ShareBit == 0 && d.loans.MayWrite(ticket)
}

// Shared is the share of a region of device memory, nil if there is none.
func (d *Lender) Shared(desc fabric.MRDesc) *local.Loan {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shares[desc]
}

// Share is Shared, lent now if it was not, with this description of the place. The caller holds the region open. An error wraps ErrNotSupported.
func (d *Lender) Share(mr *util.MR, place []byte) (*local.Loan, error) {
	defer d.Out.Flush()
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.shares[mr.Desc()]; l != nil {
		return l, nil
	}
	ticket := (d.last + 1) | ShareBit
	again := d.Table.Device(mr.Desc()) // one that is being closed is not found, or found by Revoke
	if again == nil {
		return nil, fmt.Errorf("region %d is being closed: %w", mr.Key().ID, fabric.ErrNotSupported)
	}
	defer again.Release()
	if d.loans.Stopped() || !d.loans.Free(ticket) {
		return nil, fmt.Errorf("share region %d at the end of the connection, or beyond %d loans: %w", mr.Key().ID, local.MaxLoans, fabric.ErrNotSupported)
	}
	if d.shares == nil {
		d.shares = make(map[fabric.MRDesc]*local.Loan)
	}
	d.last++
	l := d.loans.Lend(ticket, mr.Key().ID)
	d.shares[mr.Desc()] = l
	d.Out.Post(FrameLend, encodeLend(ticket, place))
	return l, nil
}

// Revoke calls the loans of a region in and returns them, to be waited for.
func (d *Lender) Revoke(region uint64) []*local.Loan {
	defer d.Out.Flush()
	d.mu.Lock()
	defer d.mu.Unlock()
	for desc, l := range d.shares {
		if l.Region == region {
			delete(d.shares, desc)
		}
	}
	return d.loans.Revoke(region, func(l *local.Loan) { d.Out.Post(FrameRevoke, encodeTicket(l.Ticket)) })
}

// OnReturn ends a loan that the peer gives back.
func (d *Lender) OnReturn(body []byte) error {
	ticket, err := parseTicket("return", body)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loans.Return(ticket)
}

// Stop ends all loans, once the peer can reach nothing any more, and waits for Describe.
func (d *Lender) Stop() {
	d.mu.Lock()
	clear(d.shares)
	d.loans.Stop()
	d.mu.Unlock()
	d.asking.Wait()
}
